"""Table of all topic settings: type, default, bounds and meaning of each.

Leaves checking values, and their effect, to `topic_configs`.

Invariant: a setting that has no effect says so: `has_effect` is false, and `meaning` begins with
NO_EFFECT. Each value that Kafka accepts for it is accepted and stored, because tools and libraries
refuse to work without such settings. `is_fixed` is true for a setting whose other values promise
something that Quire lacks: only its default is accepted.

Source: Kafka's topic-level configs, as of 4.1, and those that 4.0 removed; KIP-226 for their types.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from bookie.wire.batch import ENTRY_BYTES_MAX

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
DAY_MS: Final = 24 * 3600 * 1000

MESSAGE_BYTES_LIMIT: Final = ENTRY_BYTES_MAX - 4096
"""Maximum size of a batch: it must fit into one ledger entry."""
SEGMENT_BYTES_MIN: Final = 16 * 1024
SEGMENT_MS_MIN: Final = 100
REPLICATION_FACTOR_MAX: Final = 15
LAG_MS_MIN: Final = 100
LAG_MS_MAX: Final = 300_000
"""Less than the append deadline of a broker's ledger client: a lagging replica must leave the
in-sync set before an append fails."""


NO_EFFECT: Final = "No effect here: "
"""Beginning of the meaning of a setting without effect, for people and for `quire topic`."""


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
    """The accepted words; empty: any."""
    is_fixed: bool = False
    has_effect: bool = True
    is_old: bool = False
    """Whether only older versions of Kafka have the setting: then it is shown only where it is set.
    """


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


def _inert(
    name: str,
    kind: ConfigType,
    default: str,
    why: str,
    *values: str,
    minimum: int = 0,
    maximum: int = INT64_MAX,
    is_old: bool = False,
) -> ConfigDefinition:
    """Return a setting that is stored and has no effect."""
    return ConfigDefinition(
        name,
        kind,
        default,
        f"{NO_EFFECT}{why}",
        minimum,
        maximum,
        values,
        has_effect=False,
        is_old=is_old,
    )


_HONOURED: Final = (
    ConfigDefinition(
        "cleanup.policy",
        ConfigType.LIST,
        "delete",
        "delete: retention deletes old segments. compact: everything is kept, because compaction "
        "is not implemented. compact,delete: the same as delete. Empty: everything is kept.",
        values=("delete", "compact"),
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

_NOT_COMPACTED: Final = "compaction is not implemented, and everything is kept."
_SYNCED: Final = "bookies sync every record before it is acknowledged."
_NOT_TIERED: Final = "storage has only one tier."
_NOT_COMPRESSED: Final = "batches stay as producers compress them."
_NO_FILES: Final = "a broker has no files; ledgers are on bookies."
_NOT_THROTTLED: Final = "brokers replicate nothing, so nothing is throttled."
_ONE_FORMAT: Final = "record batches have one format, that of Kafka 0.11 and later."

_INERT: Final = (
    _inert("delete.retention.ms", ConfigType.LONG, str(DAY_MS), _NOT_COMPACTED),
    _inert("max.compaction.lag.ms", ConfigType.LONG, str(INT64_MAX), _NOT_COMPACTED, minimum=1),
    _inert("min.cleanable.dirty.ratio", ConfigType.DOUBLE, "0.5", _NOT_COMPACTED, maximum=1),
    _inert("min.compaction.lag.ms", ConfigType.LONG, "0", _NOT_COMPACTED),
    _inert(
        "compression.type",
        ConfigType.STRING,
        "producer",
        _NOT_COMPRESSED,
        *("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"),
    ),
    _inert("compression.gzip.level", ConfigType.INT, "-1", _NOT_COMPRESSED, minimum=-1, maximum=9),
    _inert("compression.lz4.level", ConfigType.INT, "9", _NOT_COMPRESSED, minimum=1, maximum=17),
    _inert(
        "compression.zstd.level",
        ConfigType.INT,
        "3",
        _NOT_COMPRESSED,
        minimum=-(2**17),
        maximum=22,
    ),
    _inert("flush.messages", ConfigType.LONG, str(INT64_MAX), _SYNCED, minimum=1),
    _inert("flush.ms", ConfigType.LONG, str(INT64_MAX), _SYNCED),
    _inert("file.delete.delay.ms", ConfigType.LONG, "60000", _NO_FILES),
    _inert("index.interval.bytes", ConfigType.INT, "4096", _NO_FILES, maximum=INT32_MAX),
    _inert("preallocate", ConfigType.BOOLEAN, "false", _NO_FILES),
    _inert(
        "segment.index.bytes",
        ConfigType.INT,
        "10485760",
        _NO_FILES,
        minimum=4,
        maximum=INT32_MAX,
    ),
    _inert("leader.replication.throttled.replicas", ConfigType.LIST, "", _NOT_THROTTLED),
    _inert("follower.replication.throttled.replicas", ConfigType.LIST, "", _NOT_THROTTLED),
    _inert("local.retention.bytes", ConfigType.LONG, "-2", _NOT_TIERED, minimum=-2),
    _inert("local.retention.ms", ConfigType.LONG, "-2", _NOT_TIERED, minimum=-2),
    _inert("remote.log.copy.disable", ConfigType.BOOLEAN, "false", _NOT_TIERED),
    _inert("remote.log.delete.on.disable", ConfigType.BOOLEAN, "false", _NOT_TIERED),
    _inert("message.format.version", ConfigType.STRING, "3.0-IV1", _ONE_FORMAT, is_old=True),
    _inert("message.downconversion.enable", ConfigType.BOOLEAN, "true", _ONE_FORMAT, is_old=True),
    _inert(
        "message.timestamp.difference.max.ms",
        ConfigType.LONG,
        str(INT64_MAX),
        "message.timestamp.before.max.ms and message.timestamp.after.max.ms replace it.",
        is_old=True,
    ),
)
_FIXED: Final = (
    ConfigDefinition(
        "remote.storage.enable",
        ConfigType.BOOLEAN,
        "false",
        "Storage has only one tier.",
        is_fixed=True,
    ),
)

REPLICATION_FACTOR: Final = "replication.factor"
"""Number of replicas that a topic was created with. It is stored and shown with the topic's
settings, and cannot be altered there."""

DEFINITIONS: Final = {
    row.name: row for row in sorted(_HONOURED + _INERT + _FIXED, key=lambda e: e.name)
}
