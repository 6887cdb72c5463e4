"""Options of the `topic` data source: Spark's texts as checked values.

Leaves the options of all sources to `common_options`, the names of Kafka's source to `kafka_names`,
and the use of the values to the readers and the writers; docs/spark.md lists them with their
defaults.

Invariants: an option that is unknown, malformed or contradicts another is an OptionError that lists
the valid ones.

Source: Spark design, "Reading"; api design, "Spark".
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from metadata.errors import InvalidTopicNameError
from metadata.topics.topic import check_topic_name
from spark_io.common_options import (
    EARLIEST,
    LATEST,
    PARTITIONS_MAX,
    SHARED,
    ClientOptions,
    OptionReader,
    client_options,
)
from spark_io.errors import OptionError
from spark_io.ledgers.options import (
    ARROW_BATCH_BYTES,
    ARROW_BATCH_BYTES_MAX,
    BATCH_MAX,
    SPLIT_BYTES,
)
from spark_io.topics.kafka_names import own_names

TOPICS_MAX: Final = 1_000
READ_COMMITTED: Final = "read_committed"
READ_UNCOMMITTED: Final = "read_uncommitted"
COMPRESSIONS: Final = ("none", "gzip")
_SERVER: Final = re.compile(r"(\[[^\]\s]+\]|[^:\[\]\s]+):\d{1,5}")
"""Compression types that the producer supports without further packages."""

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


@dataclass(frozen=True, slots=True)
class TopicReadOptions:
    """A checked set of options to read topics with."""

    client: ClientOptions
    topics: tuple[str, ...]
    starting_offsets: str
    ending_offsets: str
    is_committed: bool
    """Whether records of aborted and of open transactions are left out."""
    include_headers: bool
    split_bytes: int
    min_partitions: int
    arrow_batch_bytes: int
    fail_on_data_loss: bool
    """Whether a stream continues from offsets that have no identities."""
    max_offsets_per_trigger: int | None

    @classmethod
    def of(cls, options: Mapping[str, str]) -> "TopicReadOptions":
        """Check the options of a read. Raises OptionError."""
        given = OptionReader(own_names(options), (*SHARED, *READING))
        return cls(
            client=client_options(given),
            topics=_topics(given),
            starting_offsets=given.text("startingOffsets") or EARLIEST,
            ending_offsets=given.text("endingOffsets") or LATEST,
            is_committed=_is_committed(given),
            include_headers=given.truth("includeHeaders", default=True),
            split_bytes=given.size("splitBytes") or SPLIT_BYTES,
            min_partitions=given.positive("minPartitions", most=PARTITIONS_MAX) or 1,
            arrow_batch_bytes=(
                given.size("arrowBatchBytes", most=ARROW_BATCH_BYTES_MAX) or ARROW_BATCH_BYTES
            ),
            fail_on_data_loss=given.truth("failOnDataLoss", default=True),
            max_offsets_per_trigger=given.positive("maxOffsetsPerTrigger"),
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
        application = given.text("txnAppId") or ""
        if exactly_once and not topic:
            why = "needs the option topic: the batch's number is recorded as an offset of the topic"
            raise OptionError("exactlyOnce", why)
        if application and not exactly_once:
            raise OptionError("txnAppId", "has no effect without exactlyOnce=true")
        batch = given.natural("txnVersion")
        if batch is not None and not application:
            raise OptionError("txnVersion", "needs txnAppId, which is missing")
        if batch is not None and batch > BATCH_MAX:
            raise OptionError("txnVersion", f"{batch} is over {BATCH_MAX}")
        servers = [each.strip() for each in (given.text("bootstrapServers") or "").split(",")]
        for each in filter(None, servers):
            if not _SERVER.fullmatch(each):
                why = f"{each!r} is not an address such as broker-1:9092"
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
    names = dict.fromkeys(_checked(each.strip()) for each in text.split(","))
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
