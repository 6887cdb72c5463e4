"""Periodic upkeep of a broker's logs: retention, and reports of their replicas.

Leaves the choice of what retention removes to the logs, and writing the reports to
`metadata.topics.in_sync_reports`.

Invariants: a failure of one log does not stop the work on others. Reports name only partitions that
this broker leads, or is to lead but cannot, each with its leader epoch. Those that it cannot lead
are reported without replicas.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

from broker_layer.control.control_config import ControlConfig
from broker_layer.control.ledger_health import LedgerHealth, StoredReplicas
from broker_layer.control.partition_manager import PartitionManager
from broker_layer.control.shown_replicas import offline_report
from broker_layer.errors import TopicError
from ledger_client import LedgerError
from ledger_client.tasks import BackgroundTasks
from metadata.errors import MetadataError, MetadataFormatError
from metadata.topics.in_sync_reports import InSyncReport, InSyncReporter
from metadata.topics.partition_store import PartitionKey
from metadata.topics.replica_numbers import ReplicaNumbers

LOGS_PER_STEP: Final = 100
"""Number of logs that are checked before the event loop may do other work."""

_log = logging.getLogger("quire.broker.partitions")


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
