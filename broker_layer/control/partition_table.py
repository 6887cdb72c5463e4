"""Table of the partitions that a broker leads or should lead, for metrics and the admin port.

Leaves the values of each row to the logs and to `assigned_partition`.
"""

from collections.abc import Callable
from dataclasses import replace

from broker_layer.control.assigned_partition import Stage
from broker_layer.control.ledger_health import LedgerHealth
from broker_layer.control.partition_manager import PartitionManager
from broker_layer.errors import TopicError
from broker_layer.server.admin import LEDGERS_SHOWN_MAX, LedPartition, ShortLedger


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
        found = []
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
            found.append(self._with_log(row))
        return sorted(found, key=lambda each: (each.topic, each.partition))

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
                ShortLedger(each.ledger_id, each.entry_count, each.size_bytes, each.why)
                for each in shown
            ),
            short_ledger_count=len(stored.shortages),
            short_bytes=sum(each.size_bytes for each in stored.shortages),
        )
