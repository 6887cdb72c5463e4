"""Retention: the offset at which a log must begin.

Leaves moving the log's start and deleting ledgers to `topic_log`.

Invariants: complete ledgers are removed, oldest first; the newest one stays; a ledger without
records does not keep older ledgers.

Source: Kafka's retention.ms and retention.bytes; topics design, "The mapping" (segment).
"""

from collections.abc import Sequence

from broker_layer.log.settings.log_config import LogConfig
from metadata.topics.partition import PartitionSegment


def retained_from(
    segments: Sequence[PartitionSegment], config: LogConfig, log_start_offset: int, now_ms: int
) -> int:
    """Return the offset at which the log must begin; at least its current start."""
    start = log_start_offset
    total = sum(each.bytes or 0 for each in segments)
    for segment in segments[:-1]:
        if segment.end_offset is None:
            break
        size = segment.bytes or 0
        if not _is_too_old(segment, config, now_ms) and not _is_too_much(total - size, config):
            break
        start = max(start, segment.end_offset)
        total -= size
    return start


def is_aged(
    segment: PartitionSegment, max_timestamp_ms: int, config: LogConfig, now_ms: int
) -> bool:
    """Return whether all records of the newest ledger are too old, so that the log must roll."""
    return config.retention_ms is not None and (
        now_ms - max(segment.created_ms, max_timestamp_ms) > config.retention_ms
    )


def _is_too_old(segment: PartitionSegment, config: LogConfig, now_ms: int) -> bool:
    if config.retention_ms is None:
        return False
    newest_ms = segment.max_timestamp_ms
    if newest_ms is None or newest_ms < 0:
        newest_ms = segment.created_ms
    return now_ms - newest_ms > config.retention_ms


def _is_too_much(left_bytes: int, config: LogConfig) -> bool:
    """Return whether `left_bytes`, the log without a ledger, reaches the limit, as in Kafka."""
    return config.retention_bytes is not None and left_bytes >= config.retention_bytes
