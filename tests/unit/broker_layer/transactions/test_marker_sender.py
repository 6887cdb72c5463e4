"""Markers reach the present leader of each partition."""

import asyncio

import pytest

from broker_layer.handlers import SLICE_ELEMENTS
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.transactions.leaders import NoLeader
from broker_layer.transactions.marker_sender import MarkerJob
from broker_layer.transactions.values import Marker, TopicPartition
from tests.support.broker_layer.marker_world import OWN_ID, MarkerWorld

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
MARKER = Marker(7, 3, committed=True, coordinator_epoch=5)


def job_of(stored: list[TopicPartition], marker: Marker = MARKER) -> MarkerJob:
    return MarkerJob("t", marker, stored.append)


async def test_each_leader_gets_its_markers_in_one_request() -> None:
    world, stored = MarkerWorld(), list[TopicPartition]()
    world.leaders = {A0: 2, A1: OWN_ID, B0: 2}
    world.sender.send(job_of(stored), [A0, A1, B0])
    await asyncio.sleep(1)
    assert sorted(world.written) == [(1, A1, MARKER), (2, A0, MARKER), (2, B0, MARKER)]
    assert world.requests == [(2, 2)]
    assert sorted(stored) == [A0, A1, B0]
    assert not world.sender._pauses
    assert not world.sender._queues
    await world.sender.aclose()


async def test_each_broker_gets_one_bounded_request_at_a_time() -> None:
    world, stored = MarkerWorld(), list[TopicPartition]()
    partitions = [TopicPartition("a", number) for number in range(25)]
    world.leaders = dict.fromkeys(partitions, 2)
    world.answer_delay_s = 1.0
    world.sender.send(job_of(stored), partitions)
    await asyncio.sleep(0.5)
    assert world.requests == [(2, 10)]
    await asyncio.sleep(5)
    assert world.requests == [(2, 10), (2, 10), (2, 5)]
    assert stored == partitions
    await world.sender.aclose()


async def test_a_marker_is_retried_until_it_is_stored() -> None:
    world, stored = MarkerWorld(), list[TopicPartition]()
    world.leaders = {A0: 2, A1: OWN_ID, B0: 3}
    for partition in (A0, A1, B0):
        world.codes[partition] = [
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            ErrorCode.NOT_ENOUGH_REPLICAS,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.REQUEST_TIMED_OUT,
            ErrorCode.KAFKA_STORAGE_ERROR,
            ErrorCode.UNKNOWN_SERVER_ERROR,
        ]
    world.codes[B0].append(None)
    world.sender.send(job_of(stored), [A0, A1, B0])
    await asyncio.sleep(20)
    assert sorted(stored) == [A0, A1, B0]
    assert len(world.written) == 8 + 8 + 9
    await world.sender.aclose()


async def test_a_marker_follows_its_partition_to_another_leader() -> None:
    world, stored = MarkerWorld(), list[TopicPartition]()
    world.leaders, world.codes = {A0: 2}, {A0: [ErrorCode.NOT_LEADER_OR_FOLLOWER]}
    world.sender.send(job_of(stored), [A0])
    await asyncio.sleep(0.015)
    world.leaders = {A0: 3}
    await asyncio.sleep(1)
    assert [broker for broker, _, _ in world.written] == [2, 3]
    assert stored == [A0]
    await world.sender.aclose()


async def test_a_partition_without_leader_is_waited_for() -> None:
    world, stored = MarkerWorld(), list[TopicPartition]()
    world.leaders = {A0: NoLeader.NOT_NOW}
    world.sender.send(job_of(stored), [A0])
    await asyncio.sleep(1000)
    assert not world.written
    assert len(world.sender._pauses) == 1
    world.leaders = {A0: 2}
    for _ in range(1000):
        world.sender.retry_soon()
    await asyncio.sleep(0.04)
    assert stored == [A0]
    assert len(world.written) == 1
    await world.sender.aclose()


async def test_a_deleted_topic_needs_no_marker() -> None:
    world, stored = MarkerWorld(), list[TopicPartition]()
    world.leaders = {A0: NoLeader.DELETED}
    world.sender.send(job_of(stored), [A0])
    await asyncio.sleep(0.1)
    assert stored == [A0]
    await world.sender.aclose()


@pytest.mark.parametrize("shown", [NoLeader.ABSENT, NoLeader.DELETED])
async def test_a_topic_that_an_old_view_lacks_gets_its_marker(shown: NoLeader) -> None:
    world, stored = MarkerWorld(), list[TopicPartition]()
    world.leaders, world.records = {A0: shown, A1: shown}, {A0.topic: 1}
    world.sender.send(job_of(stored), [A0, A1])
    await asyncio.sleep(2 * world.config.absent_topic_patience_s)
    assert stored == [A1]
    assert not world.written
    world.leaders = {A0: 2}
    await asyncio.sleep(2)
    assert stored == [A1, A0]
    assert [(broker, place) for broker, place, _ in world.written] == [(2, A0)]
    await world.sender.aclose()


async def test_a_topic_whose_record_cannot_be_read_is_not_gone() -> None:
    world, stored = MarkerWorld(), list[TopicPartition]()
    world.leaders, world.records = {A0: NoLeader.DELETED, A1: NoLeader.DELETED}, None
    world.sender.send(job_of(stored), [A0, A1])
    await asyncio.sleep(5)
    assert not stored
    assert len(world.reads) < 20, "one read serves the partitions of a topic, with pauses"
    world.records = {}
    await asyncio.sleep(2)
    assert stored == [A0, A1]
    await world.sender.aclose()


async def test_a_missing_topic_is_not_treated_as_deleted_at_once() -> None:
    world, stored = MarkerWorld(), list[TopicPartition]()
    world.sender.send(job_of(stored), [A0, A1])
    await asyncio.sleep(world.config.absent_topic_patience_s - 1.5)
    assert not stored
    world.leaders = {A0: NoLeader.NOT_NOW}
    await asyncio.sleep(3)
    assert stored == [A1]
    world.leaders = {}
    await asyncio.sleep(5)
    assert stored == [A1]
    await asyncio.sleep(10)
    assert stored == [A1, A0]
    await world.sender.aclose()


async def test_a_newer_coordinator_ends_the_job() -> None:
    world, stored = MarkerWorld(), list[TopicPartition]()
    world.leaders = {A0: 2, B0: NoLeader.NOT_NOW}
    world.codes = {A0: [ErrorCode.TRANSACTION_COORDINATOR_FENCED]}
    job = job_of(stored)
    world.sender.send(job, [A0, B0])
    await asyncio.sleep(10)
    assert job.is_cancelled
    assert not stored
    assert not world.sender._pauses
    assert not world.sender._queues
    await world.sender.aclose()


async def test_a_partition_with_a_later_epoch_has_its_marker() -> None:
    world, stored = MarkerWorld(), list[TopicPartition]()
    world.leaders, world.codes = {A0: 2}, {A0: [ErrorCode.INVALID_PRODUCER_EPOCH]}
    world.sender.send(job_of(stored), [A0])
    await asyncio.sleep(1)
    assert stored == [A0]
    await world.sender.aclose()


async def test_a_cancelled_job_is_neither_sent_nor_reported() -> None:
    world, stored = MarkerWorld(), list[TopicPartition]()
    world.leaders = {A0: 2, A1: NoLeader.NOT_NOW, B0: 2}
    job, other = job_of(stored), Marker(8, 0, committed=False, coordinator_epoch=5)
    world.sender.send(job, [A0, A1])
    await asyncio.sleep(0.001)
    job.cancel()
    world.sender.send(job, [A0])
    world.sender.send(job_of(stored, other), [B0])
    await asyncio.sleep(10)
    assert world.written == [(2, A0, MARKER), (2, B0, other)]
    assert stored == [B0]
    await world.sender.aclose()


async def test_a_marker_does_not_wait_for_a_broker_that_lost_its_partition() -> None:
    world, stored = MarkerWorld(), list[TopicPartition]()
    world.leaders = {A0: 2, A1: 2, B0: 2}
    world.answer_delay_s = 30.0
    for partition in (A0, A1, B0):
        world.sender.send(job_of(stored), [partition])
        await asyncio.sleep(1)
    assert world.requests == [(2, 1)]
    world.answer_delay_s = 0.01  # of the next leader; broker 2 answers nothing until its timeout
    world.leaders[B0] = 3
    world.sender.retry_soon()
    await asyncio.sleep(1)
    assert stored == [B0]
    await asyncio.sleep(60)
    assert [written[:2] for written in world.written] == [(2, A0), (3, B0), (2, A1)]
    await world.sender.aclose()


async def test_a_partition_that_does_not_commit_holds_up_no_other_transaction_here() -> None:
    world, stuck, other = MarkerWorld(), list[TopicPartition](), list[TopicPartition]()
    world.leaders = {A0: 2, B0: 2}
    world.codes = {A0: [None]}  # both markers go to the next leader in one batch
    world.sender.send(job_of(stuck), [A0])
    world.sender.send(job_of(other, MARKER._replace(producer_id=8)), [B0])
    world.leaders = {A0: OWN_ID, B0: OWN_ID}
    world.uncommitted = {A0: asyncio.Event()}
    await asyncio.sleep(5)
    assert (stuck, other) == ([], [B0])
    world.uncommitted[A0].set()
    await asyncio.sleep(1)
    assert stuck == [A0]
    await world.sender.aclose()


async def test_the_markers_of_many_partitions_here_pass_the_loop_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("broker_layer.handlers.TURN_S", -1)
    world, stored = MarkerWorld(), list[TopicPartition]()
    partitions = [TopicPartition("a", number) for number in range(1_000)]
    world.leaders = dict.fromkeys(partitions, OWN_ID)
    world.sender.send(job_of(stored), partitions)
    steps = 0
    while len(world.written) < len(partitions):
        await asyncio.sleep(0)
        steps += 1
    assert steps >= len(partitions) // SLICE_ELEMENTS
    await asyncio.sleep(1)
    assert sorted(stored) == partitions
    await world.sender.aclose()
