"""Appends of a DataFrame's rows to topics, through the brokers that lead the partitions.

Leaves the protocol to kafka-python's producer, and order and durability to the brokers.

Each task has a separate idempotent producer: its retries store nothing twice. But a task that Spark
runs again has another producer, and the rows of an earlier attempt stay. So rows are appended at
least once, and exactly once if no task fails. `topic_once` appends exactly once. Rows of one task
that go to one partition are appended in their order.

Invariants: a task succeeds only once all of its rows are committed, by the in-sync replicas or the
quorum of the topic; the number of unacknowledged rows is limited.

Source: Spark design, "Writing: exactly once"; KIP-98.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from kafka import KafkaProducer
from kafka.errors import KafkaError
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ledger_client.cluster_access import identity_of
from metadata.brokers.broker_registry import BrokerDirectory
from metadata.errors import TopicNotFoundError
from quire.identity.kafka_settings import kafka_settings
from spark_io.errors import AppendError, NoBrokerError, SchemaError, UnknownTopicError
from spark_io.sentence_first import sentence_first
from spark_io.topics.topic_access import TopicServices, access_of
from spark_io.topics.topic_options import TopicWriteOptions

if TYPE_CHECKING:
    from kafka.producer.future import FutureRecordMetadata

UNACKNOWLEDGED_BYTES_MAX: Final = 32 * 1024 * 1024
BATCH_BYTES: Final = 256 * 1024
LINGER_MS: Final = 5
DELIVERY_TIMEOUT_MS: Final = 120_000
REQUEST_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size of a producer's request, in bytes; the broker limits the size of records."""
PREPARING_TIMEOUT_S: Final = 60.0
ROW_BYTES: Final = 64
"""Size that a row counts in addition to its key and value, in bytes."""

Headers = list[tuple[str, bytes]]
OutRow = tuple[str, bytes | None, bytes | None, int | None, Headers]
"""Topic, key, value, partition (None: chosen by the key), headers."""


@dataclass
class RowsAppended(WriterCommitMessage):
    """Number of rows that one task appended."""

    count: int


@dataclass(frozen=True, slots=True)
class Columns:
    """Columns of a DataFrame, by name."""

    has_key: bool
    has_topic: bool
    has_partition: bool
    has_headers: bool


def prepare(options: TopicWriteOptions) -> tuple[str, ...]:
    """Return the brokers to connect to first; this fails early if the cluster cannot be reached or
    the topic does not exist.
    """

    async def find(services: TopicServices) -> tuple[str, ...]:
        if options.topic:
            try:
                record, _ = await services.topics.get(options.topic, fresh=True)
            except TopicNotFoundError:
                raise UnknownTopicError(options.topic, "does not exist") from None
            if record.is_deleted:
                raise UnknownTopicError(options.topic, "was deleted")
        if options.bootstrap_servers:
            return options.bootstrap_servers
        directory = BrokerDirectory(services.store, Random())
        await directory.start()
        try:
            return _addresses(directory, options.listener)
        finally:
            await directory.aclose()

    return access_of(options.client).call("finding brokers", find, PREPARING_TIMEOUT_S)


class TopicTasks:
    """What the tasks of a batch job or of a streaming query need."""

    def __init__(
        self, options: TopicWriteOptions, columns: Columns, servers: Sequence[str]
    ) -> None:
        self._options = options
        self._columns = columns
        self._servers = tuple(servers)


class _TopicWriter(TopicTasks):
    """Work of the tasks that append."""

    @sentence_first()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Append one task's rows."""
        return append_rows(iterator, self._options, self._columns, self._servers)


class TopicBatchWriter(_TopicWriter, DataSourceArrowWriter):
    """Writer of one batch job."""

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: what was appended is there."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: what was appended stays."""


class TopicStreamWriter(_TopicWriter, DataSourceStreamArrowWriter):
    """Writer of one streaming query."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: what was appended is there."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: what was appended stays."""


def append_rows(
    batches: Iterable[pa.RecordBatch],
    options: TopicWriteOptions,
    columns: Columns,
    servers: Sequence[str],
) -> RowsAppended:
    """Append the rows of one task; return once all are committed. Raises AppendError."""
    sending: Sending | None = None
    count = 0
    try:
        for batch in batches:
            if sending is None:  # a task without rows needs no broker
                sending = Sending(producer_of(options, servers))
            for row in rows_of(batch, columns, options.topic):
                sending.send(row)
            count += batch.num_rows
        if sending is not None:
            sending.wait_for_all()
    except KafkaError as error:
        raise AppendError(f"{type(error).__name__}: {error}", servers) from error
    finally:
        if sending is not None:
            sending.close()
    return RowsAppended(count)


def rows_of(batch: pa.RecordBatch, columns: Columns, topic: str) -> Iterator[OutRow]:
    """Yield the rows of an Arrow batch. Raises SchemaError for a row that cannot be a record."""
    count = batch.num_rows
    values = _payloads(batch, "value")
    keys = _payloads(batch, "key") if columns.has_key else [None] * count
    topics = batch.column("topic").to_pylist() if columns.has_topic else [None] * count
    partitions = batch.column("partition").to_pylist() if columns.has_partition else [None] * count
    headers = batch.column("headers").to_pylist() if columns.has_headers else [None] * count
    for key, value, named, partition, found in zip(
        keys, values, topics, partitions, headers, strict=True
    ):
        if not (named or topic):
            raise SchemaError("a row names no topic, and the option topic is not given")
        if key is None and value is None:
            raise SchemaError("a row has neither key nor value: at least one is required")
        yield named or topic, key, value, partition, _headers_of(found)


class Sending:
    """Sender of rows, with a limit on unacknowledged ones."""

    def __init__(self, producer: KafkaProducer) -> None:
        self._producer = producer
        self._sent: deque[tuple[FutureRecordMetadata, int]] = deque()
        self._bytes = 0

    def send(self, row: OutRow) -> None:
        """Send one row, once there is room."""
        topic, key, value, partition, headers = row
        size = ROW_BYTES + len(key or b"") + len(value or b"")
        while self._sent and self._bytes + size > UNACKNOWLEDGED_BYTES_MAX:
            self._wait_for_first()
        future = self._producer.send(topic, value, key, headers, partition)
        self._sent.append((future, size))
        self._bytes += size

    def wait_for_all(self) -> None:
        """Return once all rows are committed."""
        self._producer.flush()
        while self._sent:
            self._wait_for_first()

    def close(self) -> None:
        """Close the producer without waiting."""
        self._producer.close(timeout=0)

    def _wait_for_first(self) -> None:
        future, size = self._sent.popleft()
        future.get(timeout=DELIVERY_TIMEOUT_MS / 1000)
        self._bytes -= size


def producer_of(
    options: TopicWriteOptions,
    servers: Sequence[str],
    *,
    transactional_id: str | None = None,
    transaction_timeout_ms: int = DELIVERY_TIMEOUT_MS,
) -> KafkaProducer:
    """Return a producer for rows; with an id it appends in transactions."""
    return KafkaProducer(
        bootstrap_servers=list(servers),
        enable_idempotence=True,
        acks="all",
        compression_type=None if options.compression == "none" else options.compression,
        batch_size=BATCH_BYTES,
        linger_ms=LINGER_MS,
        delivery_timeout_ms=DELIVERY_TIMEOUT_MS,
        max_request_size=REQUEST_BYTES_MAX,
        allow_auto_create_topics=False,
        metrics_enabled=False,
        transactional_id=transactional_id,
        transaction_timeout_ms=transaction_timeout_ms,
        **kafka_settings(identity_of(options.client.metadata)),
    )


def _addresses(directory: BrokerDirectory, listener: str) -> tuple[str, ...]:
    """Return the addresses of the registered brokers."""
    found: list[str] = []
    for _, broker in sorted(directory.brokers.items()):
        chosen = broker.listener(listener) if listener else next(iter(broker.listeners), None)
        if chosen is not None:
            found.append(f"{chosen.host}:{chosen.port}")
    if not found:
        raise NoBrokerError(listener)
    return tuple(found)


def _payloads(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    return batch.column(name).cast(pa.binary()).to_pylist()


def _headers_of(found: list[dict[str, object]] | None) -> Headers:
    headers: Headers = []
    for each in found or ():
        name, content = each["key"], each["value"]
        if not isinstance(name, str) or not isinstance(content, bytes):
            raise SchemaError("a header has no key or no value: the producer needs both")
        headers.append((name, content))
    return headers
