"""Table of all topic settings: type, default, bounds and meaning of each.

Leaves checking values to `topic_configs`, and their effect to `log_config`.

Invariant: a setting either has an effect, or `is_fixed` is true: then it is shown, and only its
default is accepted.

Source: Kafka's topic-level configs, as of 4.0; KIP-226 for their types.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
DAY_MS: Final = 24 * 3600 * 1000

MESSAGE_BYTES_LIMIT: Final = 8 * 1024 * 1024 - 4096
"""Maximum size of a batch: it must fit into one ledger entry."""
SEGMENT_BYTES_MIN: Final = 16 * 1024
SEGMENT_MS_MIN: Final = 100
REPLICATION_FACTOR_MAX: Final = 15
LAG_MS_MIN: Final = 100
LAG_MS_MAX: Final = 300_000
"""Less than the append deadline of a broker's ledger client: a lagging replica must leave the
in-sync set before an append fails."""


class ConfigType(IntEnum):
    """The types of values, with Kafka's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


@dataclass(frozen=True, slots=True)
class ConfigDefinition:
    """One setting. `default` is the text of the value; None if it follows from other settings."""

    name: str
    kind: ConfigType
    default: str | None
    meaning: str
    minimum: int = 0
    maximum: int = INT64_MAX
    values: tuple[str, ...] = ()
    is_fixed: bool = False


def _number(
    name: str, default: int, meaning: str, minimum: int = 0, maximum: int = INT64_MAX
) -> ConfigDefinition:
    return ConfigDefinition(name, ConfigType.LONG, str(default), meaning, minimum, maximum)


def _small(
    name: str, default: int, meaning: str, minimum: int = 0, maximum: int = INT32_MAX
) -> ConfigDefinition:
    return ConfigDefinition(name, ConfigType.INT, str(default), meaning, minimum, maximum)


def _choice(name: str, default: str, meaning: str, *values: str) -> ConfigDefinition:
    return ConfigDefinition(name, ConfigType.STRING, default, meaning, values=values)


def _fixed(name: str, kind: ConfigType, value: str, meaning: str) -> ConfigDefinition:
    return ConfigDefinition(name, kind, value, meaning, is_fixed=True)


_HONOURED: Final = (
    ConfigDefinition(
        "cleanup.policy",
        ConfigType.LIST,
        "delete",
        "delete: retention deletes old segments. compact: everything is kept, because compaction "
        "is not implemented. compact,delete: the same as delete.",
        values=("delete", "compact"),
    ),
    _choice(
        "compression.type", "producer", "Batches are stored as producers compress them.", "producer"
    ),
    _number(
        "max.message.bytes",
        1024 * 1024 + 12,
        "Maximum size of a batch, after compression, with its header.",
        maximum=MESSAGE_BYTES_LIMIT,
    ),
    _number(
        "message.timestamp.after.max.ms",
        3600 * 1000,
        "Maximum time by which a record's time may be ahead of the broker's clock.",
    ),
    _number(
        "message.timestamp.before.max.ms",
        INT64_MAX,
        "Maximum time by which a record's time may be behind the broker's clock.",
    ),
    _choice(
        "message.timestamp.type",
        "CreateTime",
        "Whether records keep the producer's time or get the broker's.",
        "CreateTime",
        "LogAppendTime",
    ),
    _small(
        "min.insync.replicas",
        1,
        "With fewer replicas in sync, appends are refused.",
        1,
        REPLICATION_FACTOR_MAX,
    ),
    _number(
        "replica.lag.time.max.ms",
        30_000,
        "How long a replica may leave an entry unacknowledged before it is out of sync.",
        LAG_MS_MIN,
        LAG_MS_MAX,
    ),
    _number("retention.bytes", -1, "Minimum size that a partition keeps; -1: no limit.", -1),
    _number("retention.ms", 7 * DAY_MS, "Minimum time that records are kept; -1: no limit.", -1),
    _small("segment.bytes", 1024**3, "Bytes after which a new ledger begins.", SEGMENT_BYTES_MIN),
    _number(
        "segment.jitter.ms",
        3600 * 1000,
        "Maximum random time by which a ledger ends before segment.ms; at most a tenth of that.",
    ),
    _number(
        "segment.ms", 7 * DAY_MS, "Age at which a ledger that is not empty ends.", SEGMENT_MS_MIN
    ),
    ConfigDefinition(
        "unclean.leader.election.enable",
        ConfigType.BOOLEAN,
        "false",
        "Whether a partition continues without acknowledged records if no replica in sync answers.",
    ),
    _choice(
        "replication.mode",
        "in-sync",
        "in-sync: all replicas in sync acknowledge (Kafka's rule). quorum: `ack.quorum` of "
        "`write.quorum` do (BookKeeper's).",
        "in-sync",
        "quorum",
    ),
    ConfigDefinition(
        "write.quorum",
        ConfigType.INT,
        None,
        "replication.mode=quorum: replicas of each record; by default the replication factor.",
        1,
        REPLICATION_FACTOR_MAX,
    ),
    ConfigDefinition(
        "ack.quorum",
        ConfigType.INT,
        None,
        "replication.mode=quorum: replicas that must acknowledge; by default more than half.",
        1,
        REPLICATION_FACTOR_MAX,
    ),
)

_FIXED: Final = (
    _fixed("delete.retention.ms", ConfigType.LONG, "86400000", "Compaction is not implemented."),
    _fixed(
        "file.delete.delay.ms",
        ConfigType.LONG,
        "60000",
        "Bookies delete a ledger without metadata.",
    ),
    _fixed("flush.messages", ConfigType.LONG, str(INT64_MAX), "Every record is synced."),
    _fixed("flush.ms", ConfigType.LONG, str(INT64_MAX), "Every record is synced."),
    _fixed("index.interval.bytes", ConfigType.INT, "4096", "The index is kept in the ledger."),
    _fixed("leader.replication.throttled.replicas", ConfigType.LIST, "", "Not throttled."),
    _fixed("follower.replication.throttled.replicas", ConfigType.LIST, "", "Not throttled."),
    _fixed(
        "max.compaction.lag.ms", ConfigType.LONG, str(INT64_MAX), "Compaction is not implemented."
    ),
    _fixed("min.cleanable.dirty.ratio", ConfigType.DOUBLE, "0.5", "Compaction is not implemented."),
    _fixed("min.compaction.lag.ms", ConfigType.LONG, "0", "Compaction is not implemented."),
    _fixed("preallocate", ConfigType.BOOLEAN, "false", "Bookies keep one log for all ledgers."),
    _fixed("remote.storage.enable", ConfigType.BOOLEAN, "false", "Storage has only one tier."),
    _fixed("segment.index.bytes", ConfigType.INT, "10485760", "The index is in the ledger."),
)

REPLICATION_FACTOR: Final = "replication.factor"
"""Number of replicas that a topic was created with. It is stored and shown with the topic's
settings, and cannot be altered there."""

DEFINITIONS: Final = {each.name: each for each in sorted(_HONOURED + _FIXED, key=lambda e: e.name)}
