"""Coordinators' partitions, reports of replicas, and retention."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from random import Random

import pytest

from broker_layer.control.assigned_partition import Stage
from broker_layer.control.led_partitions import ReplicaReports, RetentionTimer
from broker_layer.coordinator_partitions import CONSUMER_OFFSETS
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.state_log import DurableLog, OpenDurableLog
from metadata.errors import MetadataFormatError
from metadata.paths import replica_path
from metadata.topics.in_sync_reports import InSyncReporter
from metadata.topics.partition_store import PartitionKey
from metadata.topics.replica_numbers import REPLICA_ID_FIRST, ReplicaNumbers
from tests.support.broker_layer.control_setting import CONFIG, Setting
from tests.support.broker_layer.log_setting import append, batch, values
from tests.until import until


@dataclass
class Coordinator:
    """Coordinator that stores a list of words for each partition."""

    words: dict[int, list[bytes]] = field(default_factory=dict)
    logs: dict[int, DurableLog] = field(default_factory=dict)
    failures_left: int = 0
    gate: asyncio.Event | None = None
    """A load waits for it after all records are read."""
    is_read: asyncio.Event = field(default_factory=asyncio.Event)
    resigned: list[int] = field(default_factory=list)

    async def load(self, partition: int, open_log: OpenDurableLog) -> None:
        if self.failures_left:
            self.failures_left -= 1
            raise TopicError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "not today")
        words: list[bytes] = []

        def snapshot() -> Iterable[bytes]:
            return [b",".join(words)]

        def load(record: bytes) -> None:
            words[:] = record.split(b",")

        log = await open_log(load=load, snapshot=snapshot, on_failed=lambda: None)
        if self.gate is not None:
            self.is_read.set()
            await self.gate.wait()
        self.words[partition], self.logs[partition] = words, log

    async def resign(self, partition: int) -> None:
        self.words.pop(partition, None)
        self.resigned.append(partition)
        log = self.logs.pop(partition, None)
        if log is not None:
            await log.aclose()

    async def add(self, partition: int, word: bytes) -> None:
        self.words[partition].append(word)
        await self.logs[partition].append(b",".join(self.words[partition]))


async def test_a_coordinators_state_moves_with_its_partition(setting: Setting) -> None:
    first, second = Coordinator(), Coordinator()
    one = await setting.broker(1, coordinators={CONSUMER_OFFSETS: first})
    await one.changes.ensure(CONSUMER_OFFSETS, 5.0)
    await until(lambda: len(first.words) == 2)
    await first.add(0, b"a")
    await first.add(0, b"b")
    with pytest.raises(TopicError) as caught:
        one.manager.log_of(CONSUMER_OFFSETS, 0)
    assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED

    await setting.stop(one)
    assert sorted(first.resigned) == [0, 1]
    await setting.broker(2, coordinators={CONSUMER_OFFSETS: second})

    await until(lambda: len(second.words) == 2)
    assert second.words[0] == [b"a", b"b"]


async def test_loading_is_retried_in_a_new_epoch(setting: Setting) -> None:
    coordinator = Coordinator(failures_left=2)
    one = await setting.broker(1, coordinators={CONSUMER_OFFSETS: coordinator})

    await one.changes.ensure(CONSUMER_OFFSETS, 5.0)

    await until(lambda: len(coordinator.words) == 2)
    assert len(coordinator.resigned) == 2


async def test_coordinators_resign_when_the_session_lapses_and_load_again(
    setting: Setting,
) -> None:
    coordinator = Coordinator()
    one = await setting.broker(1, coordinators={CONSUMER_OFFSETS: coordinator})
    await one.changes.ensure(CONSUMER_OFFSETS, 5.0)
    await until(lambda: len(coordinator.words) == 2)
    await coordinator.add(1, b"kept")

    one.store.suspend()
    await until(lambda: not coordinator.words)
    one.store.resume()

    await until(lambda: len(coordinator.words) == 2)
    assert coordinator.words[1] == [b"kept"]


async def test_a_load_during_which_the_session_lapses_is_not_served(setting: Setting) -> None:
    coordinator = Coordinator()
    one = await setting.broker(1, coordinators={CONSUMER_OFFSETS: coordinator})
    await one.changes.ensure(CONSUMER_OFFSETS, 5.0)
    await until(lambda: len(coordinator.words) == 2)
    coordinator.gate = asyncio.Event()
    held = one.manager._assigned[CONSUMER_OFFSETS][1]
    held.fail("its log failed")  # so that it is loaded again
    await coordinator.is_read.wait()

    one.store.suspend()
    await until(lambda: one.view.lease.has_lapsed)
    coordinator.gate.set()
    await held.finished()
    assert 1 not in coordinator.words
    assert held.status.stage is Stage.WAITS
    assert held.status.reason == "the session of this broker has lapsed"

    one.store.resume()
    await until(lambda: len(coordinator.words) == 2)
    assert held.status.epoch > 1


async def test_a_coordinators_log_knows_of_a_lapse_before_any_timer(setting: Setting) -> None:
    """After a delay of the loop, requests may come before the timer of the lapse."""
    coordinator = Coordinator()
    one = await setting.broker(1, coordinators={CONSUMER_OFFSETS: coordinator})
    await one.changes.ensure(CONSUMER_OFFSETS, 5.0)
    await until(lambda: len(coordinator.words) == 2)
    log = coordinator.logs[1]
    assert log.lead_refusal is None

    one.store.suspend()
    await until(lambda: one.view.lease._suspended_s is not None)
    assert log.lead_refusal is None
    assert one.view.lease._suspended_s is not None
    one.view.lease._suspended_s -= one.session_timeout_s

    assert log.lead_refusal is not None
    assert log.lead_refusal.code is ErrorCode.NOT_COORDINATOR
    assert one.manager._assigned[CONSUMER_OFFSETS][1].status.stage is Stage.LEADS


async def test_replicas_are_reported_to_all_brokers_while_they_are_led(setting: Setting) -> None:
    one, two = await setting.broker(1), await setting.broker(2)
    await until(lambda: len(one.view.brokers) == 2)
    record = await one.create("orders", 2)
    await append(await one.log("orders"), batch(b"one"))
    reporter = InSyncReporter(one.store, 1, Random(5), interval_s=0.01)
    numbers = ReplicaNumbers(one.store, Random(6))
    config = replace(CONFIG, report_interval_s=0.01)
    reports = ReplicaReports(one.manager, reporter, numbers, one.health, config)
    reporter.start()
    reports.start()
    key = PartitionKey(record.topic_id, 0)

    await until(lambda: two.reports.find(key) is not None)

    report = two.reports.find(key)
    assert report is not None
    assert (report.replicas, report.leader_epoch) == ((REPLICA_ID_FIRST,), 0)
    await one.changes.delete("orders")
    await until(lambda: two.reports.find(key) is None)
    await reports.aclose()
    await reporter.aclose()


async def test_a_bookie_whose_number_cannot_be_read_hides_no_other(setting: Setting) -> None:
    await setting.cluster.add_bookie()
    one = await setting.broker(1)
    await one.create("orders", 8)
    logs = [await one.log("orders", partition) for partition in range(8)]
    await until(lambda: all(log.replicas for log in logs))
    bad = logs[0].replicas[0]
    await one.store.create(replica_path(bad), b"?")
    reporter = InSyncReporter(one.store, 1, Random(5), interval_s=0.01)
    numbers = ReplicaNumbers(one.store, Random(6))
    reports = ReplicaReports(one.manager, reporter, numbers, one.health, CONFIG)
    reporter.start()
    with pytest.raises(MetadataFormatError):
        await reports.report()
    good = [log.key for log in logs if bad not in log.replicas]
    assert 0 < len(good) < len(logs)
    await until(lambda: all(one.reports.find(key) is not None for key in good))
    await reporter.aclose()


async def test_retention_drops_what_is_old(setting: Setting) -> None:
    one = await setting.broker(1)
    await one.create("orders", retention_ms="1", segment_ms="100", segment_bytes="16384")
    log = await one.log("orders")
    for _ in range(4):
        await append(log, batch(b"x" * 10_000))
    timer = RetentionTimer(one.manager, CONFIG, lambda: 1_700_000_900_000)

    for _ in range(200):
        await timer.enforce()
        if log.log_start_offset > 0:
            break
        await asyncio.sleep(0.01)

    assert log.log_start_offset > 0
    assert log.log_start_offset <= log.high_watermark == 4
    with pytest.raises(TopicError):
        await values(log, 0)
