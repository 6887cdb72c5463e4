"""Options of the `topic` data source, also by the names of Spark's Kafka source, as checked values.

Leaves the use of the values to the readers and the writers; docs/spark.md lists them with their
defaults.

Invariants: an option that is unknown, malformed or contradicts another is an OptionError that lists
the valid ones; one of Kafka's source without counterpart is an OptionError that says why and what
to do, and is never ignored silently.

Source: Spark design, "Reading"; api design, "Spark".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from metadata.errors import InvalidTopicNameError
from metadata.topics.topic import check_topic_name
from spark_io.common_options import (
    SHARED,
    ClientOptions,
    CommonReadOptions,
    OptionReader,
    client_options,
    common_reading,
    numbered_batch,
)
from spark_io.errors import OptionError

TOPICS_MAX: Final = 1_000
READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"
COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
READING: Final = (
    "topic",
    "startingOffsets",
    "endingOffsets",
    "isolation.level",
    "includeHeaders",
    "splitBytes",
    "minPartitions",
    "arrowBatchBytes",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "bootstrapServers",
)
"""Reads take bootstrapServers for programs of Kafka users, and do not use it."""
WRITING: Final = (
    "topic",
    "bootstrapServers",
    "listener",
    "compression",
    "exactlyOnce",
    "txnAppId",
    "txnVersion",
)
ALIASES: Final = {
    "subscribe": "topic",
    "kafka.bootstrap.servers": "bootstrapServers",
    "kafka.isolation.level": "isolation.level",
    "kafka.compression.type": "compression",
}
"""Option of this source for each option of Kafka's."""
_BY_TIME: Final = (
    "records are not found by time: give offsets with startingOffsets or endingOffsets"
)
_NO_GROUP: Final = "the source reads bookies without a consumer group: remove the option"
_NO_WAIT: Final = (
    "a micro-batch begins as soon as there are records: use a trigger with an interval"
)
_NO_SIZE: Final = (
    "the sizes of records are not known when a micro-batch is planned: use maxOffsetsPerTrigger"
)
ABSENT: Final = {
    "assign": "partitions cannot be chosen: use subscribe, and filter by the column partition",
    "subscribepattern": "patterns are not supported: name the topics with subscribe",
    "startingtimestamp": _BY_TIME,
    "endingtimestamp": _BY_TIME,
    "startingoffsetsbytimestamp": _BY_TIME,
    "endingoffsetsbytimestamp": _BY_TIME,
    "startingoffsetsbytimestampstrategy": _BY_TIME,
    "groupidprefix": _NO_GROUP,
    "kafka.group.id": _NO_GROUP,
    "minoffsetspertrigger": _NO_WAIT,
    "maxtriggerdelay": _NO_WAIT,
    "maxbytespertrigger": _NO_SIZE,
    "maxentriespertrigger": "a topic has records with offsets: use maxOffsetsPerTrigger",
}
"""Reason for each option of Kafka's or the `ledger` source, in lower case, without counterpart."""
_PREFIX: Final = "kafka."
_OTHER: Final = (
    "settings of Kafka's clients are not passed on: an identity is in the client file that "
    "docs/security.md describes, and other settings are options of this source"
)
_SERVER: Final = re.compile(r"(\[[^\]\s]+\]|[^:\[\]\s]+):\d{1,5}")


@dataclass(frozen=True, slots=True)
class TopicReadOptions(CommonReadOptions):
    """A checked set of options to read topics with."""

    topics: tuple[str, ...]
    is_committed: bool
    """Whether records of aborted and of open transactions are left out."""
    include_headers: bool

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TopicReadOptions":
        """Check the options of a read. Raises OptionError."""
        given = OptionReader(own_names(options), (*SHARED, *READING))
        return cls(
            **common_reading(given),
            topics=_topics(given),
            is_committed=_is_committed(given),
            include_headers=given.truth("includeHeaders", default=True),
        )


@dataclass(frozen=True, slots=True)
class TopicWriteOptions:
    """A checked set of options to write into topics with."""

    client: ClientOptions
    topic: str
    """Topic for rows that name no topic; empty if every row names its topic."""
    bootstrap_servers: tuple[str, ...]
    """Brokers to connect to first; empty for the registered ones."""
    listener: str
    """Listener of registered brokers to use; empty for the first."""
    compression: str
    exactly_once: bool
    """Whether each batch is appended in one transaction that also records the batch's number."""
    application: str
    """Name of the job with exactlyOnce; empty for the id of the streaming query."""
    batch: int | None
    """Number of this run of a batch job."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TopicWriteOptions":
        """Check the options of a write. Raises OptionError."""
        given = OptionReader(own_names(options), (*SHARED, *WRITING))
        compression = (given.text("compression") or "none").lower()
        if compression not in COMPRESSIONS:
            text = f"{compression!r} is none of {', '.join(COMPRESSIONS)}"
            raise OptionError("compression", text)
        topic = given.text("topic")
        exactly_once = given.truth("exactlyOnce", default=False)
        application, batch = numbered_batch(given)
        if exactly_once and not topic:
            why = "needs the option topic: the batch's number is recorded as an offset of the topic"
            raise OptionError("exactlyOnce", why)
        if application and not exactly_once:
            raise OptionError("txnAppId", "has no effect without exactlyOnce=true")
        servers = [part.strip() for part in (given.text("bootstrapServers") or "").split(",")]
        for server in filter(None, servers):
            if not _SERVER.fullmatch(server):
                why = f"{server!r} is not an address such as broker-1:9092"
                raise OptionError("bootstrapServers", why)
        return cls(
            client=client_options(given),
            topic=_checked(topic) if topic else "",
            bootstrap_servers=tuple(filter(None, servers)),
            listener=given.text("listener") or "",
            compression=compression,
            exactly_once=exactly_once,
            application=application,
            batch=batch,
        )


def _topics(given: OptionReader) -> tuple[str, ...]:
    text = given.text("topic")
    if not text:
        raise OptionError(
            "topic", "missing: name a topic, or several separated by commas (as subscribe)"
        )
    names = dict.fromkeys(_checked(part.strip()) for part in text.split(","))
    if len(names) > TOPICS_MAX:
        raise OptionError("topic", f"{len(names)} topics: name at most {TOPICS_MAX}")
    return tuple(names)


def _checked(name: str) -> str:
    try:
        return check_topic_name(name)
    except InvalidTopicNameError as error:
        raise OptionError("topic", str(error)) from error


def _is_committed(given: OptionReader) -> bool:
    text = (given.text("isolation.level") or READ_COMMITTED).lower()
    if text not in (READ_COMMITTED, READ_UNCOMMITTED):
        why = f"{text!r} is neither {READ_COMMITTED} nor {READ_UNCOMMITTED}"
        raise OptionError("isolation.level", why)
    return text == READ_COMMITTED


def own_names(options: Mapping[str, str]) -> dict[str, str]:
    """Return the options by the names of this source. Raises OptionError."""
    renamed: dict[str, str] = {}
    given: dict[str, str] = {}
    for name, value in options.items():
        own = ALIASES.get(name.lower())
        if own is None:
            _refuse_absent(name)
        target = (own or name).lower()
        if target in renamed and renamed[target] != value:
            raise OptionError(name, f"contradicts {given[target]}, which means the same: give one")
        renamed[target], given[target] = value, name
    return renamed


def _refuse_absent(name: str) -> None:
    why = ABSENT.get(name.lower())
    if why is None and name.lower().startswith(_PREFIX):
        why = f"{_OTHER}; of Kafka's there are {[alias for alias in ALIASES if _PREFIX in alias]}"
    if why is not None:
        raise OptionError(name, why)
