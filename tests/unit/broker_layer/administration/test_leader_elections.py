"""Elections of preferred leaders, and unclean elections."""

from collections.abc import Iterable, Sequence

import pytest

from broker_layer.control import assignment as unclean_elections
from broker_layer.control.assigned_partition import Stage
from broker_layer.control.assignment import Loads
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ElectLeadersRequest,
    ElectLeadersResponse,
)
from broker_layer.kafka.versions import ApiKey
from metadata.topics.topic import TopicRecord
from tests.support.broker_layer.asking import Admin, topic
from tests.support.broker_layer.control_setting import Setting
from tests.until import until


async def elect(
    admin: Admin, *partitions: int, kind: int = 0, version: int = 2, topic_name: str = "a"
) -> list[int]:
    rows = [ElectLeadersRequest.TopicPartitions(topic=topic_name, partitions=list(partitions))]
    request = ElectLeadersRequest(election_type=kind, topic_partitions=rows, timeout_ms=1000)
    answer = await admin.ask(ApiKey.ELECT_LEADERS, request, ElectLeadersResponse, version)
    return [
        partition_result.error_code
        for row in answer.replica_election_results
        for partition_result in row.partition_result
    ]


@pytest.mark.parametrize("version", range(3))
async def test_preferred_leaders_are_elected(setting: Setting, admin: Admin, version: int) -> None:
    await setting.broker(2)
    await until(lambda: len(admin.broker.view.brokers) == 2)
    await admin.create(topic("a", 2))
    record = admin.broker.view.topics["a"]
    assert await elect(admin, 0, 7, version=version) == [
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    await admin.broker.controller.aclose()
    moved = await admin.broker.topics.change("a", lambda known: known.with_leaders({0: 2}))
    admin.broker.view.learn(moved)

    assert await elect(admin, 0, version=version) == [0]

    assert admin.broker.leaders("a") == [partition.preferred for partition in record.partitions]


async def test_an_election_for_all_answers_only_needed_elections(admin: Admin) -> None:
    await admin.create(topic("a", 2))
    request = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=1000)

    answer = await admin.ask(ApiKey.ELECT_LEADERS, request, ElectLeadersResponse)

    assert list(answer.replica_election_results) == []


@pytest.mark.parametrize("name", ["a", "absent"])
async def test_an_unknown_kind_of_election_is_refused(admin: Admin, name: str) -> None:
    await admin.create(topic("a"))
    assert await elect(admin, 0, kind=5, topic_name=name) == [ErrorCode.INVALID_REQUEST]


async def test_an_unclean_leadership_is_stored_with_its_epoch(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_layer.administration.leader_elections.REPORT_CHECK_PERIOD_S", 0.0)
    await admin.create(topic("a"))
    log = await admin.broker.log("a")

    assert await elect(admin, 0, kind=1) == [0]

    broker = admin.broker
    epoch = log.leader_epoch + 1
    assert broker.epochs("a") == [epoch]
    assert broker.view.topics["a"].configs["quire.unclean"] == f"0:{epoch}"

    def leads_uncleanly() -> bool:
        status = broker.manager.status_of("a", 0)
        return status is not None and (status.stage, status.epoch) == (Stage.LEADS, epoch)

    await until(leads_uncleanly)
    assert broker.manager.log_of("a", 0).config.unclean_since == epoch


async def test_an_election_of_many_partitions_reads_the_cluster_once(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else its time grows with the square of their number: 16 s for 4,000."""
    monkeypatch.setattr("broker_layer.administration.leader_elections.REPORT_CHECK_PERIOD_S", 0.0)
    await admin.broker.manager.aclose()
    await admin.create(topic("a", 50))
    counted: list[Sequence[TopicRecord]] = []

    def count(topics: Iterable[TopicRecord], brokers: Iterable[int]) -> Loads:
        counted.append(list(topics))
        return Loads(dict.fromkeys(brokers, 0))

    monkeypatch.setattr(Loads, "of", count)
    unclean_elections._epochs_in.cache_clear()

    assert await elect(admin, *range(50), kind=1) == [0] * 50

    assert len(counted) == 1
    assert unclean_elections._epochs_in.cache_info().misses == 2, "before and after"
    assert len(unclean_elections.unclean_epochs(admin.broker.view.topics["a"].configs)) == 50


async def test_a_late_election_is_answered_with_an_error(
    admin: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("broker_layer.administration.leader_elections.REPORT_CHECK_PERIOD_S", 0.0)
    await admin.create(topic("a"))
    stale = admin.broker.view.topics["a"]
    await admin.broker.log("a")
    await admin.broker.manager.aclose()
    await admin.broker.view.aclose()
    await admin.broker.topics.change("a", lambda record: record.with_leaders({0: 1}))
    assert admin.broker.view.topics["a"] == stale

    assert await elect(admin, 0, kind=1) == [ErrorCode.REQUEST_TIMED_OUT]
