"""Partitions that a broker leads or should lead: their replicas as clients, other brokers and
operators see them, and their retention.

Leaves the choice of what retention removes to the logs, a leader's knowledge of its replicas to its
log and to `ledger_health.py`, and writing reports to `metadata.topics.in_sync_reports`.

Invariants: a partition with a leader always shows replicas, at least one of them in sync; one that
its leader cannot take over shows none in sync. Reports name only partitions that this broker leads,
or is to lead but cannot, each with its leader epoch; the latter are reported without replicas. A
failure of one log does not stop the work on others.

Source: topics design, "The mapping" (replicas, ISR).
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from broker_layer.control.assigned_partition import Stage
from broker_layer.control.bookie_states import LiveBookies
from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.control_config import ControlConfig
from broker_layer.control.ledger_health import LedgerHealth, StoredReplicas
from broker_layer.control.partition_manager import PartitionManager
from broker_layer.errors import TopicError
from broker_layer.log.topic_configs import TopicDefaults, replication_factor
from broker_layer.server.admin import LEDGERS_SHOWN_MAX, UNKNOWN, LedPartition, ShortLedger
from ledger_client import LedgerError
from ledger_client.tasks import BackgroundTasks
from metadata.errors import MetadataError, MetadataFormatError
from metadata.topics.in_sync_reports import InSyncReport, InSyncReporter
from metadata.topics.partition_store import PartitionKey
from metadata.topics.replica_numbers import ReplicaNumbers
from metadata.topics.topic import NO_LEADER, TopicRecord

LOGS_PER_STEP: Final = 100
"""Number of logs that are checked before the event loop may do other work."""
_log = logging.getLogger("quire.broker.partitions")


@dataclass(frozen=True, slots=True)
class ShownReplicas:
    """The replicas of one partition, by their numbers."""

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def offline(self) -> list[int]:
        """The replicas that are not in sync."""
        return [replica for replica in self.replicas if replica not in self.in_sync]


def offline_report(epoch: int) -> InSyncReport:
    """Return the report of a leader that cannot take a partition over."""
    return InSyncReport(epoch, (), ())


@dataclass(eq=False, repr=False)
class ReplicaView:
    """Finds replicas: in this broker's logs, and for other partitions in their leaders' reports.

    A partition without a ledger is shown with live bookies, because its own are not chosen yet.
    """

    _view: ClusterView
    _manager: PartitionManager
    _numbers: ReplicaNumbers
    _bookies: LiveBookies
    _health: LedgerHealth
    _defaults: TopicDefaults

    def of(self, record: TopicRecord, partition: int) -> ShownReplicas:
        """Return the replicas to show for a partition."""
        leadership = record.partitions[partition]
        if self.is_offline(record, partition):
            return ShownReplicas(self._expected(record, leadership.leader).replicas, ())
        if leadership.leader == self._manager.broker_id:
            led = self._led(record.name, partition)
            if led is not None:
                return led
        report = self._view.reports.find(PartitionKey(record.topic_id, partition))
        if report is not None and report.replicas:
            return ShownReplicas(report.replicas, report.in_sync or report.replicas[:1])
        return self._expected(record, leadership.leader)

    def is_offline(self, record: TopicRecord, partition: int) -> bool:
        """Return whether a partition's leader reports that it cannot take the partition over."""
        leadership = record.partitions[partition]
        if leadership.leader == self._manager.broker_id:
            return self._manager.is_offline(record.name, partition)
        report = self._view.reports.find(PartitionKey(record.topic_id, partition))
        return report == offline_report(leadership.leader_epoch)

    def _led(self, topic: str, partition: int) -> ShownReplicas | None:
        try:
            log = self._manager.log_of(topic, partition)
        except TopicError:
            return None
        replicas, in_sync = self._health.replicas_of(log).known_numbers(self._numbers)
        return ShownReplicas(replicas, in_sync or replicas[:1]) if replicas else None

    def _expected(self, record: TopicRecord, leader: int) -> ShownReplicas:
        count = replication_factor(record.configs, self._defaults)
        numbers = tuple(self._bookies.numbers()[:count])
        if not numbers and leader != NO_LEADER:
            numbers = (leader,)
        return ShownReplicas(numbers, numbers)


class RetentionTimer:
    """Enforces, at intervals, the retention time and size of all logs that this broker leads."""

    def __init__(
        self, manager: PartitionManager, config: ControlConfig, wall_clock_ms: Callable[[], int]
    ) -> None:
        self._manager = manager
        self._interval_s = config.retention_interval_s
        self._wall_clock_ms = wall_clock_ms
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Start the timer."""
        self._tasks.start(self._run())

    async def aclose(self) -> None:
        """Stop the timer."""
        await self._tasks.aclose()

    async def enforce(self) -> None:
        """Enforce retention once on every log, in sequence."""
        for log in self._manager.logs():
            if log.failure is not None:
                continue
            try:
                await log.enforce_retention(self._wall_clock_ms())
            except (TopicError, LedgerError, MetadataError) as error:
                _log.warning(
                    "retention of %s-%s failed and runs again later: %s",
                    log.topic,
                    log.key.partition,
                    error,
                )

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self.enforce()


class ReplicaReports:
    """Reports changes of the replicas of the partitions that this broker leads."""

    def __init__(
        self,
        manager: PartitionManager,
        reporter: InSyncReporter,
        numbers: ReplicaNumbers,
        health: LedgerHealth,
        config: ControlConfig,
    ) -> None:
        self._manager = manager
        self._reporter = reporter
        self._numbers = numbers
        self._health = health
        self._interval_s = config.report_interval_s
        self._reported: dict[PartitionKey, tuple[object, ...]] = {}
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Start to report at intervals."""
        self._tasks.start(self._run())

    async def aclose(self) -> None:
        """Stop; the last reports stay stored."""
        await self._tasks.aclose()

    async def report(self) -> None:
        """Report the changes since the last call. Raises MetadataError; the number of a bookie that
        cannot be read hides no other one.
        """
        unreadable: MetadataFormatError | None = None
        led: dict[PartitionKey, None] = {}
        for key, epoch in self._manager.offline():
            led[key] = None
            self._reporter.report(key, offline_report(epoch))
            self._reported[key] = (epoch,)
        for count, (key, epoch, stored) in enumerate(self._led()):
            if not stored.replicas:
                continue  # it has no ledger yet
            led[key] = None
            now = (epoch, stored.replicas, stored.in_sync, stored.lacks_one)
            if self._reported.get(key) != now:
                try:
                    replicas, in_sync = await stored.read_numbers(self._numbers)
                except MetadataFormatError as error:
                    unreadable = error
                    continue
                self._reporter.report(key, InSyncReport(epoch, replicas, in_sync))
                self._reported[key] = now
            if count % LOGS_PER_STEP == LOGS_PER_STEP - 1:
                await asyncio.sleep(0)
        for key in [known for known in self._reported if known not in led]:
            del self._reported[key]
            self._reporter.withdraw(key)
        if unreadable is not None:
            raise unreadable

    def _led(self) -> Iterator[tuple[PartitionKey, int, StoredReplicas]]:
        for log in self._manager.logs():
            if log.failure is None:
                yield log.key, log.leader_epoch, self._health.replicas_of(log)

    async def _run(self) -> None:
        while True:
            try:
                await self.report()
            except MetadataError as error:
                _log.debug("in-sync replicas were not reported; the broker tries again: %s", error)
            await asyncio.sleep(self._interval_s)


class LedPartitions:
    """All partitions of one broker."""

    def __init__(
        self, manager: PartitionManager, health: LedgerHealth, now: Callable[[], float]
    ) -> None:
        self._manager = manager
        self._health = health
        self._now = now

    def rows(self) -> list[LedPartition]:
        """Return the rows, sorted by topic and partition."""
        rows = []
        now_s = self._now()
        for topic, partition, status in self._manager.statuses():
            missing = "" if status.stage is Stage.LEADS else status.reason or status.stage.value
            row = LedPartition(
                topic,
                partition,
                status.epoch,
                status.stage.value,
                missing,
                round(now_s - status.since_s, 3),
            )
            rows.append(self._with_log(row))
        return sorted(rows, key=lambda led: (led.topic, led.partition))

    def _with_log(self, row: LedPartition) -> LedPartition:
        try:
            log = self._manager.log_of(row.topic, row.partition)
        except TopicError:
            return row
        stored = self._health.replicas_of(log)
        shown = stored.shortages[:LEDGERS_SHOWN_MAX]
        return replace(
            row,
            log_start_offset=log.log_start_offset,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_end_offset=log.log_end_offset,
            size_bytes=log.size_bytes,
            replicas=tuple(map(str, stored.replicas)),
            in_sync=tuple(map(str, stored.in_sync)),
            is_short=stored.is_short,
            short_ledgers=tuple(
                ShortLedger(short.ledger_id, short.entry_count, short.size_bytes, short.why)
                for short in shown
            ),
            short_ledger_count=len(stored.shortages),
            short_bytes=sum(shortage.size_bytes for shortage in stored.shortages),
            future_offset=UNKNOWN if log.future is None else log.future.offset,
            future_until_ms=UNKNOWN if log.future is None else log.future.until_ms,
        )
