"""Prometheus metrics of the complete cluster, from what the console knows of it.

Leaves the check of all ledgers to `survey`, figures of repair to `quire.operate.repair_summary`,
and metrics of single servers to those servers. This code runs only for a request of the metrics.

Invariant: a figure that is not known, because no check has ended or the metadata service does not
answer, is absent; it is never 0.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from ledger_client.cluster_access import Cluster
from metadata.errors import MetadataError
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.paths import BROKERS, CONTROLLER
from metadata.repair.lifecycle import UNCHANGED, Lifecycle
from metadata.store.interface import find
from quire.console.survey import Survey, Surveyed
from quire.operate.as_json import DOWN, READ_ONLY, UP, state_of
from quire.operate.health import Health
from quire.operate.repair_summary import URGENCY_TEXTS, RepairSummary, read_summary
from quire.server.overriding import override

PREFIX: Final = "quire_cluster"
READ_S_MAX: Final = 5.0
COPIES_SHOWN_MAX: Final = 3
"""Number of certain copies from which on ledgers are counted together."""
STATES: Final = (
    UP,
    READ_ONLY,
    DOWN,
    *(str(e) for e in Lifecycle if e is not Lifecycle.ACTIVE),
)
"""States of a bookie: how it is registered if it is active, otherwise its lifecycle."""


@dataclass(frozen=True, slots=True)
class BrokersSeen:
    """Brokers, as the metadata has them."""

    up: int
    has_controller: bool


class ClusterMetrics(Collector):
    """Collector of one request's figures."""

    def __init__(
        self,
        surveyed: Surveyed | None,
        failure: str,
        now_s: float,
        repair: RepairSummary | None,
        brokers: BrokersSeen | None,
    ) -> None:
        """`failure` says why the last check failed, and is empty if it did not. `repair` and
        `brokers` are None if the metadata service did not answer.
        """
        self._surveyed = surveyed
        self._failure = failure
        self._now_s = now_s
        self._repair = repair
        self._brokers = brokers

    @override
    def collect(self) -> Iterator[Metric]:
        """Return every metric that is known."""
        yield _gauge(
            "check_failed",
            "1 if the last check of all ledgers failed, else 0.",
            bool(self._failure),
        )
        if self._surveyed is not None:
            yield from self._of_survey(self._surveyed)
        if self._repair is not None:
            yield from _of_repair(self._repair)
        if self._brokers is not None:
            yield _gauge("brokers", "Brokers that are up.", self._brokers.up)
            text = "1 while a broker is the controller, else 0."
            yield _gauge("controller", text, self._brokers.has_controller)

    def _of_survey(self, surveyed: Surveyed) -> Iterator[Metric]:
        health = surveyed.health
        age_s = self._now_s - surveyed.ended_s
        yield _gauge(
            "check_age_seconds", "Seconds since the last check of all ledgers ended.", age_s
        )
        yield _gauge(
            "check_duration_seconds",
            "Seconds that the last check of all ledgers took.",
            surveyed.ended_s - surveyed.began_s,
        )
        yield _gauge(
            "metadata_answer_seconds",
            "Seconds of one read of the metadata service at the last check.",
            health.answer_ms / 1000,
        )
        yield _gauge("findings", "Problems that the last check found.", len(health.findings))
        yield _gauge("warnings", "Warnings of the last check.", len(health.warnings))
        yield _labelled(
            "bookies",
            "Bookies by state: up, read-only or down if they are active, else their lifecycle.",
            "state",
            bookies_by_state(health),
        )
        if health.ledgers is not None:
            states = {str(each): health.ledgers.by_state[each] for each in LedgerState}
            yield _labelled("ledgers", "Ledgers by state.", "state", states)
            yield _labelled(
                "ledgers_by_copies",
                "Ledgers by the certain copies, on bookies that are up, of their entries with the"
                f" fewest copies; {COPIES_SHOWN_MAX} stands for more too.",
                "copies",
                ledgers_by_copies(health.ledgers.certain_copies),
            )


async def read_cluster_metrics(cluster: Cluster, survey: Survey, now_s: float) -> ClusterMetrics:
    """Read what no check keeps, and return the metrics of now."""
    repair, brokers = None, None
    with contextlib.suppress(MetadataError, TimeoutError):
        async with asyncio.timeout(READ_S_MAX):
            repair = await read_summary(cluster)
            names = await cluster.store.children(BROKERS)
            brokers = BrokersSeen(len(names), await find(cluster.store, CONTROLLER) is not None)
    return ClusterMetrics(survey.last, survey.failure, now_s, repair, brokers)


def bookies_by_state(health: Health) -> dict[str, int]:
    """Return the number of bookies in each state; removed ones do not count as down."""
    found = dict.fromkeys(STATES, 0)
    for each in {*health.known, *health.up}:
        lifecycle = health.states.get(each, UNCHANGED).state
        found[state_of(health.up.get(each), lifecycle)] += 1
    return found


def ledgers_by_copies(certain: Counter[int]) -> dict[str, int]:
    """Return the number of ledgers for each number of certain copies."""
    found = {str(copies): 0 for copies in range(COPIES_SHOWN_MAX + 1)}
    for copies, ledgers in certain.items():
        found[str(min(copies, COPIES_SHOWN_MAX))] += ledgers
    return found


def _of_repair(repair: RepairSummary) -> Iterator[Metric]:
    yield _gauge("auditor", "1 while a process is the auditor, else 0.", bool(repair.auditor_id))
    yield _gauge("repair_workers", "Processes that repair ledgers.", len(repair.workers))
    yield _gauge("repair_paused", "1 while an operator's pause of repair lasts.", repair.is_paused)
    yield _gauge("repair_jobs", "Published jobs of repair.", len(repair.published))
    yield _gauge("repair_claims", "Ledgers that are repaired now.", len(repair.claims))
    status = repair.status
    if status is None:
        return
    ledgers = dict.fromkeys(map(str, URGENCY_TEXTS), 0)
    for each in status.totals:
        ledgers[str(each.urgency)] = each.ledgers
    classes = "; ".join(f"{urgency}: {text}" for urgency, text in URGENCY_TEXTS.items())
    yield _labelled(
        "repair_ledgers", f"Ledgers that need a repair, by class. {classes}.", "class", ledgers
    )
    blocked = sum(each.ledgers for each in status.blocked)
    yield _gauge("repair_blocked_ledgers", "Ledgers that cannot be repaired now.", blocked)
    yield _gauge("repair_lost_ledgers", "Ledgers with entries without a copy.", status.lost_ledgers)
    yield _gauge("repair_left_bytes", "Bytes that are to be copied.", status.bytes_left)
    yield _gauge(
        "repair_bytes_per_second", "Bytes copied per second in the last minute.", status.bytes_per_s
    )
    yield _gauge(
        "repair_status_age_seconds",
        "Seconds since the auditor wrote its summary, which it does each minute at least.",
        max(0, repair.now_ms - status.written_ms) / 1000,
    )


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(f"{PREFIX}_{name}", text, float(value))


def _labelled(name: str, text: str, label: str, values: Mapping[str, int]) -> Metric:
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=[label])
    for value, count in values.items():
        family.add_metric([value], count)
    return family
