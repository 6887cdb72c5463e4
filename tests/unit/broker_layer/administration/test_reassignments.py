"""Reassignments: they move the preferred leader, and the list shows what is still to move."""

import asyncio
from random import Random

import pytest

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from broker_layer.kafka.versions import ApiKey
from metadata.ids import BookieId, LedgerId
from metadata.repair.job_store import JobStore
from metadata.repair.jobs import MOVING_URGENCY, Job, JobName
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.topics.replica_numbers import REPLICA_ID_FIRST
from tests.support.broker_layer.asking import Admin, topic
from tests.support.broker_layer.control_setting import Broker, Setting, registration
from tests.support.broker_layer.log_setting import append, batch
from tests.until import until

Changed = AlterPartitionReassignmentsRequest.ReassignableTopic
Asked = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics
Row = tuple[str, int, list[int], list[int]]


async def alter(
    admin: Admin, name: str, wanted: dict[int, list[int] | None], version: int = 1
) -> dict[int, tuple[ErrorCode, str | None]]:
    partitions = [
        Changed.ReassignablePartition(partition_index=partition, replicas=replicas)
        for partition, replicas in wanted.items()
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=1000,
        allow_replication_factor_change=True,
        topics=[Changed(name=name, partitions=partitions)],
    )
    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    answer = await admin.ask(key, request, AlterPartitionReassignmentsResponse, version)
    assert answer.error_code == ErrorCode.NONE
    (changed,) = answer.responses
    return {
        partition.partition_index: (ErrorCode(partition.error_code), partition.error_message)
        for partition in changed.partitions
    }


async def listed(admin: Admin, topics: list[Asked] | None = None) -> list[Row]:
    """Return topic, partition, adding and removing of each reassignment."""
    request = ListPartitionReassignmentsRequest(timeout_ms=1000, topics=topics)
    key = ApiKey.LIST_PARTITION_REASSIGNMENTS
    answer = await admin.ask(key, request, ListPartitionReassignmentsResponse)
    assert answer.error_code == ErrorCode.NONE
    rows: list[Row] = []
    for found in answer.topics:
        for partition in found.partitions:
            adding, removing = list(partition.adding_replicas), list(partition.removing_replicas)
            assert list(partition.replicas)[: len(adding + removing)] == adding + removing
            rows.append((found.name, partition.partition_index, adding, removing))
    return rows


def leaders(broker: Broker, name: str) -> list[tuple[int, int]]:
    return [
        (partition.preferred, partition.leader) for partition in broker.view.topics[name].partitions
    ]


@pytest.fixture
async def two(setting: Setting, admin: Admin) -> Broker:
    """Return the second broker; the first leads both partitions of the topic."""
    second = await setting.broker(2)
    await until(lambda: len(admin.broker.view.brokers) == 2)
    made = await admin.create(topic("a", assigned=[[1], [1]]))
    assert made[0].error_code == ErrorCode.NONE
    return second


@pytest.mark.parametrize("version", [0, 1])
async def test_the_first_broker_leads_and_is_preferred(
    admin: Admin, two: Broker, version: int
) -> None:
    outcomes = await alter(admin, "a", {1: [2]}, version)
    assert outcomes == {1: (ErrorCode.NONE, None)}
    await until(lambda: two.leads("a", 1))
    assert leaders(admin.broker, "a") == [(1, 1), (2, 2)]
    assert admin.broker.epochs("a") == [0, 1]
    stored, _ = await two.topics.get("a", fresh=True)
    assert stored.partitions[1].preferred == 2
    assert await listed(admin) == []


async def test_the_same_assignment_again_changes_nothing(admin: Admin, two: Broker) -> None:
    del two
    before = admin.broker.view.topics["a"].token
    assert await alter(admin, "a", {0: [1]}) == {0: (ErrorCode.NONE, None)}
    assert admin.broker.view.topics["a"].token == before


@pytest.mark.parametrize(
    ("replicas", "code", "text"),
    [
        ([], ErrorCode.INVALID_REPLICATION_ASSIGNMENT, "empty"),
        ([2, 2], ErrorCode.INVALID_REPLICATION_ASSIGNMENT, "twice"),
        ([7], ErrorCode.INVALID_REPLICATION_ASSIGNMENT, "broker 7 is not up"),
        ([-1], ErrorCode.INVALID_REPLICATION_ASSIGNMENT, "broker -1 is not up"),
        ([REPLICA_ID_FIRST], ErrorCode.INVALID_REPLICATION_ASSIGNMENT, "quire bookie drain"),
        ([2, 1], ErrorCode.INVALID_REPLICATION_FACTOR, "the replication factor is 1"),
    ],
)
async def test_a_wrong_list_is_refused_for_its_partition_only(
    admin: Admin, two: Broker, replicas: list[int], code: ErrorCode, text: str
) -> None:
    outcomes = await alter(admin, "a", {0: replicas, 1: [2]})
    assert outcomes[0][0] is code
    assert text in (outcomes[0][1] or "")
    assert outcomes[1] == (ErrorCode.NONE, None)
    assert leaders(admin.broker, "a") == [(1, 1), (2, 2)]
    await until(lambda: two.leads("a", 1))


async def test_a_broker_that_stops_gets_no_partition(admin: Admin, two: Broker) -> None:
    two.registrar.update(registration(2, is_leaving=True))
    await until(lambda: admin.broker.view.may_lead() == [1])
    outcomes = await alter(admin, "a", {0: [2]})
    assert outcomes[0][0] is ErrorCode.INVALID_REPLICATION_ASSIGNMENT
    assert leaders(admin.broker, "a")[0] == (1, 1)


async def test_unknown_partitions_are_refused_and_not_listed(admin: Admin, two: Broker) -> None:
    del two
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (await alter(admin, "a", {9: [1]}))[9][0] is unknown
    assert (await alter(admin, "a", {-1: None}))[-1][0] is unknown
    assert (await alter(admin, "none", {0: [1]}))[0][0] is unknown
    asked = [Asked(name="a", partition_indexes=[0, 9, -1]), Asked(name="none")]
    assert await listed(admin, asked) == []


async def test_a_partition_of_another_leader_is_listed_and_can_be_cancelled(
    setting: Setting, admin: Admin, two: Broker
) -> None:
    await alter(admin, "a", {1: [2]})
    await until(lambda: two.leads("a", 1))
    await setting.stop(two)
    await until(lambda: leaders(admin.broker, "a")[1] == (2, 1))
    assert await listed(admin) == [("a", 1, [2], [1])]
    assert await listed(admin, [Asked(name="a", partition_indexes=[0])]) == []

    outcomes = await alter(admin, "a", {0: None, 1: None})
    assert outcomes[0][0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert outcomes[1] == (ErrorCode.NONE, None)
    assert leaders(admin.broker, "a") == [(1, 1), (1, 1)]
    assert await listed(admin) == []


async def test_ledgers_that_repair_moves_are_listed(
    admin: Admin, two: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    del two
    monkeypatch.setattr("broker_layer.administration.reassignments.KEPT_S", -1.0)
    broker = admin.broker
    log = await broker.log("a", 1)
    await append(log, batch(b"one"))
    (member,) = log.replicas
    segment = log._ledger_list.record.segments[-1]
    await LifecycleStore(broker.store, Random(1)).change(member, Lifecycle.DRAINING, "a test", 1)
    await until(lambda: broker.states.is_leaving(member))
    job = Job(JobName(MOVING_URGENCY, 1, segment.ledger_id), ("a test",), 1)
    gone = Job(JobName(MOVING_URGENCY, 1, LedgerId(999)), ("a test",), 1)
    jobs = JobStore(broker.store, Random(2))
    await jobs.publish(job)
    await jobs.publish(gone)
    await until(lambda: len(broker.repair_jobs.names) == 2)

    number = await admin.bookies._numbers.number_of(BookieId(member))
    assert await listed(admin) == [("a", 1, [], [number])]
    outcome = (await alter(admin, "a", {1: None}))[1]
    assert outcome[0] is ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    assert "undrain" in (outcome[1] or "")

    _, version = await jobs.get(job.name)
    await jobs.remove(job.name, version)
    await until(lambda: len(broker.repair_jobs.names) == 1)
    assert await listed(admin) == []


async def test_the_jobs_are_read_once_for_many_lists(admin: Admin, two: Broker) -> None:
    del two
    broker = admin.broker
    assert await listed(admin) == []
    job = Job(JobName(MOVING_URGENCY, 1, LedgerId(999)), ("a test",), 1)
    await JobStore(broker.store, Random(2)).publish(job)
    await until(lambda: bool(broker.repair_jobs.names))
    reads: list[LedgerId] = []
    read = broker.ledgers.get

    async def counted(ledger_id: LedgerId, *, fresh: bool = False, agreed: bool = False) -> object:
        reads.append(ledger_id)
        return await read(ledger_id, fresh=fresh, agreed=agreed)

    broker.ledgers.get = counted  # type: ignore[method-assign, assignment]
    await asyncio.gather(*[listed(admin) for _ in range(5)])
    assert reads == [], "the answer is kept"
