"""What a topic's settings mean to the logs of its partitions.

Leaves checking single settings to `topic_configs.py`, and acting on them to `topic_log.py`.

Invariants: `min_in_sync` is at most the number of replicas, in quorum mode at most the ack quorum;
a topic that is only compacted has no retention.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.topic_config_table import INT64_MAX, REPLICATION_FACTOR
from broker_layer.log.topic_configs import (
    TopicDefaults,
    check_configs,
    is_true,
    list_of,
    own_configs,
)
from ledger_client import Quorum


@dataclass(frozen=True, slots=True)
class LogConfig:
    """How one partition's log replicates, rolls, keeps and refuses. Times are in milliseconds."""

    quorum: Quorum
    """Of the next ledger: one that is open keeps its own."""
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    """How much earlier than `segment_ms` a ledger may end, at random."""
    retention_ms: int | None
    """None: for ever."""
    retention_bytes: int | None
    is_compacted: bool
    """Whether cleanup.policy names compact: record counts of batches may then be uneven."""
    max_message_bytes: int
    min_in_sync: int
    uses_append_time: bool
    timestamp_before_max_ms: int | None
    """How far behind the broker's clock a record's time may be; None: as far as it likes."""
    timestamp_after_max_ms: int | None
    unclean_recovery: bool
    """Whether a takeover may go on without what the last members of a ledger alone held."""
    unclean_since: int | None = None
    """From which leader epoch on an operator asked for the same, and for going on without ledgers
    of which no replica answers: until a leadership has begun.
    """
    is_deletable: bool = True
    """Whether cleanup.policy names delete: else nobody deletes records by hand either."""


def log_config(stored: Mapping[str, str], defaults: TopicDefaults) -> LogConfig:
    """Return what a topic's stored settings mean, with `defaults` for what they do not say.

    Raises TopicError with INVALID_CONFIG for settings that contradict each other.
    """
    values = _Values(stored, defaults)
    policies = list_of(values.text("cleanup.policy"))
    is_kept = "delete" not in policies
    quorum, min_in_sync = _replication(values)
    segment_ms = values.number("segment.ms")
    append_time = values.text("message.timestamp.type") == "LogAppendTime"
    return LogConfig(
        quorum=quorum,
        segment_bytes=values.number("segment.bytes"),
        segment_ms=segment_ms,
        segment_jitter_ms=min(values.number("segment.jitter.ms"), segment_ms // 10),
        retention_ms=None if is_kept else values.bound("retention.ms"),
        retention_bytes=None if is_kept else values.bound("retention.bytes"),
        is_compacted="compact" in policies,
        max_message_bytes=values.number("max.message.bytes"),
        min_in_sync=min_in_sync,
        uses_append_time=append_time,
        timestamp_before_max_ms=values.bound("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=values.bound("message.timestamp.after.max.ms"),
        unclean_recovery=is_true(values.text("unclean.leader.election.enable")),
        is_deletable=not is_kept,
    )


def checked_log_config(stored: Mapping[str, str], defaults: TopicDefaults) -> LogConfig:
    """As `log_config`, of settings that a client gives: each is checked first."""
    check_configs(own_configs(stored))
    return log_config(stored, defaults)


def replication_factor(stored: Mapping[str, str], defaults: TopicDefaults) -> int:
    """Return how many replicas a topic has."""
    return int(stored.get(REPLICATION_FACTOR, defaults.replication_factor))


class _Values:
    """Looks settings up, with their defaults."""

    def __init__(self, stored: Mapping[str, str], defaults: TopicDefaults) -> None:
        self.stored = stored
        self.defaults = defaults
        self.replicas = replication_factor(stored, defaults)

    def text(self, name: str) -> str:
        value = self.stored.get(name)
        if value is None:
            value = self.defaults.value(name)
        assert value is not None, name
        return value.strip()

    def number(self, name: str) -> int:
        return int(self.text(name))

    def bound(self, name: str) -> int | None:
        number = self.number(name)
        return None if number < 0 or number == INT64_MAX else number

    def optional(self, name: str, default: int) -> int:
        value = self.stored.get(name) or self.defaults.value(name)
        return default if value is None else int(value)


def _replication(values: _Values) -> tuple[Quorum, int]:
    if values.text("replication.mode") == "quorum":
        return _fixed_quorum(values)
    for name in ("write.quorum", "ack.quorum"):
        if name in values.stored:
            raise _refused(f"{name} needs replication.mode=quorum")
    min_in_sync = _min_in_sync(values, values.replicas, "the replication factor")
    lag_s = values.number("replica.lag.time.max.ms") / 1000
    return Quorum.in_sync(values.replicas, min_in_sync, replica_lag_time_max=lag_s), min_in_sync


def _fixed_quorum(values: _Values) -> tuple[Quorum, int]:
    write = values.optional("write.quorum", values.replicas)
    if write != values.replicas:
        raise _refused(
            f"write.quorum is {write} and the replication factor {values.replicas}: they are the "
            "same thing, so give one of them"
        )
    ack = values.optional("ack.quorum", write // 2 + 1)
    if ack > write:
        raise _refused(f"ack.quorum is {ack}, more than the {write} replicas")
    return Quorum(write, write, ack), _min_in_sync(values, ack, "ack.quorum")


def _min_in_sync(values: _Values, limit: int, what: str) -> int:
    number = values.number("min.insync.replicas")
    if number > limit and "min.insync.replicas" in values.stored:
        raise _refused(
            f"min.insync.replicas is {number} and {what} {limit}: no append could ever succeed"
        )
    return min(number, limit)


def _refused(text: str) -> TopicError:
    return TopicError(ErrorCode.INVALID_CONFIG, text)
