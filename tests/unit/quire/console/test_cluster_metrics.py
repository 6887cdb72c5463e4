"""Metrics of the complete cluster."""

from collections.abc import Mapping

from metadata.repair.lifecycle import Lifecycle
from quire.console.cluster_metrics import BrokersSeen, ClusterMetrics
from quire.console.options import ConsoleOptions
from tests.support.quire.cluster_samples import sample_repair, sample_survey
from tests.support.quire.console import open_console
from tests.support.quire.memory_cluster import MemoryCluster
from tests.unit.quire.console.test_cluster_pages import first_check


def values(metrics: ClusterMetrics) -> Mapping[tuple[str, ...], float]:
    return {
        (sample.name.removeprefix("quire_cluster_"), *sample.labels.values()): sample.value
        for metric in metrics.collect()
        for sample in metric.samples
    }


def test_each_bookie_counts_in_one_state() -> None:
    states = {"d": Lifecycle.DRAINING, "l": Lifecycle.LOST, "r": Lifecycle.REMOVED}
    survey = sample_survey("abdlr", "ad", states, {0: 1, 1: 2, 3: 4, 5: 8})
    found = values(ClusterMetrics(survey, "", 3.0, None, None))
    counts = {key[1]: value for key, value in found.items() if key[0] == "bookies" and value}
    assert counts == {"up": 1, "down": 1, "draining": 1, "lost": 1, "removed": 1}
    copies = [found["ledgers_by_copies", str(number)] for number in range(4)]
    assert copies == [1, 2, 0, 12]
    assert found["check_age_seconds",] == 2.0
    assert found["check_failed",] == 0


def test_figures_of_repair() -> None:
    found = values(ClusterMetrics(None, "", 3.0, sample_repair(), BrokersSeen(2, False)))
    assert found["repair_ledgers", "2"] == found["repair_blocked_ledgers",] == 1
    assert found["repair_status_age_seconds",] == 3.0
    assert (found["auditor",], found["brokers",], found["controller",]) == (1, 2, 0)


def test_what_is_not_known_is_absent() -> None:
    assert values(ClusterMetrics(None, "no answer", 3.0, None, None)) == {("check_failed",): 1}


async def test_a_console_serves_them(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    options = ConsoleOptions(metadata="zk://nowhere:1/cluster", port=0)
    async with open_console(options) as (_, browser):
        await first_check(browser)
        text = (await browser.get("/metrics")).text
    assert 'quire_cluster_bookies{state="up"} 1.0' in text
    assert "quire_cluster_auditor 0.0" in text
