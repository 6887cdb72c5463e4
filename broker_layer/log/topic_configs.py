"""Settings of topics: checks of single ones, and the configuration of a log that they give.

Leaves the settings themselves to `topic_config_table`, and applying them to `topic_log`.

Invariants: an unknown setting is refused. A setting without effect is stored and shown as such; the
strict form of a check accepts only its default.

Source: KIP-226 and KIP-339, as Kafka's tools use them.
"""

import difflib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.log.topic_config_table import (
    DEFINITIONS,
    INT64_MAX,
    REPLICATION_FACTOR,
    ConfigDefinition,
    ConfigType,
)
from ledger_client import Quorum

OUR_PREFIX: Final = "quire."
"""Prefix of names that are stored with a topic's settings and that clients do not see."""


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """Defaults of topics, from the configuration of the brokers."""

    partitions: int = 1
    replication_factor: int = 3
    configs: Mapping[str, str] = field(default_factory=dict)
    is_strict: bool = False
    """Whether settings without effect are refused."""

    def value(self, name: str) -> str | None:
        """Return the default of a setting: the brokers' default, else the built-in one."""
        return self.configs.get(name, DEFINITIONS[name].default)


def check_configs(configs: Mapping[str, str], *, is_strict: bool = False) -> None:
    """Refuse settings that are unknown, malformed or out of range; with `is_strict` also those
    without effect.

    Raises TopicError with INVALID_CONFIG.
    """
    for name, value in configs.items():
        check_config(name, value, is_strict=is_strict)


def is_settable(definition: ConfigDefinition, *, is_strict: bool) -> bool:
    """Return whether a setting can have another value than its default."""
    return not definition.is_fixed and (definition.has_effect or not is_strict)


def without_effect(configs: Mapping[str, str]) -> list[str]:
    """Return the names of settings that have no effect here."""
    return [name for name in configs if name in DEFINITIONS and not DEFINITIONS[name].has_effect]


def check_config(name: str, value: str, *, is_strict: bool = False) -> None:
    """Refuse one setting, as `check_configs` does."""
    definition = DEFINITIONS.get(name)
    if definition is None:
        raise refused_config(_unknown(name))
    if not is_settable(definition, is_strict=is_strict):
        if value.strip() != definition.default:
            raise refused_config(
                f"{name} cannot be {value!r}: it is always {definition.default!r}. "
                f"{definition.meaning}"
            )
        return
    match definition.kind:
        case ConfigType.BOOLEAN:
            if value.strip().lower() not in ("true", "false"):
                raise refused_config(f"{name} must be true or false, not {value!r}")
        case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
            _check_number(definition, value, int, "an integer")
        case ConfigType.LIST:
            _check_values(definition, list_of(value), value)
        case ConfigType.STRING:
            _check_values(definition, [value], value)
        case ConfigType.DOUBLE:
            _check_number(definition, value, float, "a number")


def list_of(value: str) -> list[str]:
    """Return the elements of a list setting."""
    return [part.strip() for part in value.split(",") if part.strip()]


def is_true(value: str) -> bool:
    """Return the value of a checked boolean setting."""
    return value.strip().lower() == "true"


def changed_configs(
    current: Mapping[str, str], changes: Mapping[str, str | None], *, is_strict: bool = False
) -> dict[str, str]:
    """Return a topic's settings with `changes` applied; None resets a setting to its default."""
    kept = {name: value for name, value in current.items() if name not in changes}
    new = {name: value for name, value in changes.items() if value is not None}
    check_configs(new, is_strict=is_strict)
    return dict(sorted((kept | new).items()))


def own_configs(stored: Mapping[str, str]) -> dict[str, str]:
    """Return the stored settings that clients see and may alter."""
    return {name: value for name, value in stored.items() if not _is_ours(name)}


def kept_configs(stored: Mapping[str, str]) -> dict[str, str]:
    """Return stored settings that clients cannot alter: replication factor and internal ones."""
    return {name: value for name, value in stored.items() if _is_ours(name)}


def _is_ours(name: str) -> bool:
    return name == REPLICATION_FACTOR or name.startswith(OUR_PREFIX)


def _check_number(
    definition: ConfigDefinition, value: str, read: Callable[[str], float], kind: str
) -> None:
    try:
        number = read(value.strip())
    except ValueError:
        raise refused_config(f"{definition.name} must be {kind}, not {value!r}") from None
    if not definition.minimum <= number <= definition.maximum:  # NaN fails too
        bounds = f"{definition.minimum} to {definition.maximum}"
        raise refused_config(f"{definition.name} must be {bounds}, not {value.strip()}")


def _check_values(definition: ConfigDefinition, given: list[str], value: str) -> None:
    if not definition.values:
        return
    has_one = bool(given) or definition.kind is ConfigType.LIST  # a list may be empty
    if not has_one or not all(item in definition.values for item in given):
        offered = " or ".join(definition.values)
        raise refused_config(f"{definition.name} must be {offered}, not {value!r}")


def _unknown(name: str) -> str:
    if name == REPLICATION_FACTOR:
        return f"{name} can only be set when a topic is created"
    near = difflib.get_close_matches(name, DEFINITIONS, n=1)
    hint = f"did you mean {near[0]}?" if near else "docs/topics.md lists all topic settings"
    return f"there is no topic setting {name!r}: {hint}"


def refused_config(text: str) -> TopicError:
    """Return the error for a setting that cannot be used."""
    return TopicError(ErrorCode.INVALID_CONFIG, text)


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Settings of one partition's log. Times are in milliseconds.

    Invariants: `min_in_sync` is at most the number of replicas, in quorum mode at most the ack
    quorum; a topic that is only compacted has no retention.
    """

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
