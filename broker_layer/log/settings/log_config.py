"""Configuration of a partition's log, derived from the settings of its topic.

Leaves checking single settings to `topic_configs`, and applying them to `topic_log`.

Invariants: `min_in_sync` is at most the number of replicas, in quorum mode at most the ack quorum;
a topic that is only compacted has no retention.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from broker_layer.log.settings.topic_config_table import INT64_MAX, REPLICATION_FACTOR
from broker_layer.log.settings.topic_configs import (
    TopicDefaults,
    check_configs,
    is_true,
    list_of,
    refused_config,
)
from ledger_client import Quorum


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one partition's log. Times are in milliseconds."""

    quorum: Quorum
    """The quorum of the next ledger; an open ledger keeps its quorum."""
    segment_bytes: int
    segment_ms: int
    segment_jitter_ms: int
    """A ledger ends up to this much earlier than `segment_ms`, at random."""
    retention_ms: int | None
    """None: no limit."""
    retention_bytes: int | None
    is_compacted: bool
    """Whether cleanup.policy names compact: then every record must have a key."""
    max_message_bytes: int
    uses_append_time: bool
    timestamp_before_max_ms: int | None
    """Maximum time by which a record's time may be behind the broker's clock; None: no limit."""
    timestamp_after_max_ms: int | None
    unclean_recovery: bool
    """Whether a takeover may continue without entries that only the last members of a ledger
    stored."""
    unclean_since: int | None = None
    """Leader epoch from which on an operator allows the same, and continuing without ledgers of
    which no replica answers. It applies until a leadership has begun.
    """
    is_deletable: bool = True
    """Whether cleanup.policy names delete; otherwise DeleteRecords is refused too."""


def log_config(stored: Mapping[str, str], defaults: TopicDefaults) -> LogConfig:
    """Return the configuration for a topic's stored settings; `defaults` apply to missing ones.

    Raises TopicError INVALID_CONFIG for settings that contradict each other.
    """
    values = _Values(stored, defaults)
    policies = list_of(values.text("cleanup.policy"))
    is_kept = "delete" not in policies
    segment_ms = values.number("segment.ms")
    append_time = values.text("message.timestamp.type") == "LogAppendTime"
    return LogConfig(
        quorum=_replication(values),
        segment_bytes=values.number("segment.bytes"),
        segment_ms=segment_ms,
        segment_jitter_ms=min(values.number("segment.jitter.ms"), segment_ms // 10),
        retention_ms=None if is_kept else values.bound("retention.ms"),
        retention_bytes=None if is_kept else values.bound("retention.bytes"),
        is_compacted="compact" in policies,
        max_message_bytes=values.number("max.message.bytes"),
        uses_append_time=append_time,
        timestamp_before_max_ms=values.bound("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=values.bound("message.timestamp.after.max.ms"),
        unclean_recovery=is_true(values.text("unclean.leader.election.enable")),
        is_deletable=not is_kept,
    )


def checked_log_config(stored: Mapping[str, str], defaults: TopicDefaults) -> LogConfig:
    """Return `log_config` of settings from a client, after checking each one; the replication
    factor among them is checked by the caller.

    Raises TopicError INVALID_CONFIG, also for settings that only brokers store.
    """
    given = {name: value for name, value in stored.items() if name != REPLICATION_FACTOR}
    check_configs(given, is_strict=defaults.is_strict)
    return log_config(stored, defaults)


def replication_factor(stored: Mapping[str, str], defaults: TopicDefaults) -> int:
    """Return the number of replicas of a topic."""
    return int(stored.get(REPLICATION_FACTOR, defaults.replication_factor))


class _Values:
    """Settings of a topic, with defaults for missing ones."""

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


def _replication(values: _Values) -> Quorum:
    if values.text("replication.mode") == "quorum":
        return _fixed_quorum(values)
    for name in ("write.quorum", "ack.quorum"):
        if name in values.stored:
            raise refused_config(
                f"{name} needs replication.mode=quorum: set that too, or leave {name} out"
            )
    min_in_sync = _min_in_sync(values, values.replicas, "the replication factor")
    lag_s = values.number("replica.lag.time.max.ms") / 1000
    return Quorum.in_sync(values.replicas, min_in_sync, replica_lag_time_max=lag_s)


def _fixed_quorum(values: _Values) -> Quorum:
    write = values.optional("write.quorum", values.replicas)
    if write != values.replicas:
        raise refused_config(
            f"write.quorum is {write} and the replication factor is {values.replicas}: both are "
            "the number of replicas, so give only one of them"
        )
    ack = values.optional("ack.quorum", write // 2 + 1)
    if ack > write:
        raise refused_config(
            f"ack.quorum is {ack}, more than the {write} replicas: use 1 to {write}"
        )
    _min_in_sync(values, ack, "ack.quorum")  # raises if every append would be refused
    return Quorum(write, write, ack)


def _min_in_sync(values: _Values, limit: int, what: str) -> int:
    number = values.number("min.insync.replicas")
    if number > limit and "min.insync.replicas" in values.stored:
        raise refused_config(
            f"min.insync.replicas is {number} and {what} is {limit}, so every append would be "
            f"refused: use 1 to {limit}"
        )
    return min(number, limit)
