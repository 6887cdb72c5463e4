"""Appends of a DataFrame's rows to topics, through the brokers that lead the partitions.

Leaves the protocol to kafka-python's producer (`topics.producer`), and order, durability and
transactions to the brokers.

At least once: each task has a separate idempotent producer: its retries store nothing twice. But a
task that Spark runs again has another producer, and the rows of an earlier attempt stay. So rows
are appended at least once, and exactly once if no task fails. Rows of one task that go to one
partition are appended in their order.

Exactly once: tasks append nothing. They hand their rows to the driver with their commit messages,
and Spark keeps the messages of one attempt of each task. The driver appends all rows in one
transaction, which also commits the batch's number as an offset of a consumer group. Transaction and
group are named after the application: the streaming query, or the job. Before it appends, the
driver starts its producer. That fences a driver that still runs, and ends a transaction that it
left. Then the driver reads the group's offset: a batch whose number is recorded is not appended
again. The offset's metadata is the id of the streaming query: the batches of another one are
refused.

Invariants: a task succeeds only once all of its rows are committed, by the in-sync replicas or the
quorum of the topic; the number of unacknowledged rows is limited. With exactlyOnce the rows of a
batch and its number become visible together or not at all; the number is read only after the
producer started; the rows of a batch have at most `HELD_BYTES_MAX` bytes.

Source: Spark design, "Writing: exactly once"; decision 0017; KIP-98; KIP-129.
"""

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final
from uuid import UUID

import pyarrow as pa
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ledger_client.cluster_access import identity_of
from metadata.brokers.broker_registry import BrokerDirectory
from metadata.errors import TopicNotFoundError
from quire.addresses import join_address
from quire.identity.client_file import kafka_settings
from spark_io.common_options import require_number
from spark_io.errors import (
    AppendError,
    NoBrokerError,
    OldBatchError,
    OtherQueryError,
    SchemaError,
    TooManyRowsError,
    TransactionError,
    UnknownTopicError,
)
from spark_io.topics.access import TopicServices, access_of
from spark_io.topics.options import TopicWriteOptions
from spark_io.topics.producer import Headers, OutRow, Sending, producer_of
from spark_io.workers import (
    query_id_of_job,
    query_id_of_stream,
    query_id_of_task,
    sentence_first,
)

PREPARING_TIMEOUT_S: Final = 60.0
HELD_BYTES_MAX: Final = 64 * 1024 * 1024
"""Maximum size of a batch's rows, in bytes: the driver's processes hold them in memory."""
TRANSACTION_TIMEOUT_MS: Final = 120_000
"""Time after which brokers abort the transaction of a driver that is gone, in milliseconds."""
APPEND_TIMEOUT_S: Final = 110.0
RECORD_TIMEOUT_MS: Final = 30_000
"""Time to wait for the recorded number of the last batch, in milliseconds."""
PREFIX: Final = "spark."
"""Start of the names of transactions and of consumer groups."""
_log = logging.getLogger(__name__)


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
    for key, value, named, partition, listed in zip(
        keys, values, topics, partitions, headers, strict=True
    ):
        if not (named or topic):
            raise SchemaError("a row names no topic, and the option topic is not given")
        yield named or topic, key, value, partition, _headers_of(listed)


def _addresses(directory: BrokerDirectory, listener: str) -> tuple[str, ...]:
    """Return the addresses of the registered brokers."""
    servers: list[str] = []
    for _, broker in sorted(directory.brokers.items()):
        chosen = broker.listener(listener) if listener else next(iter(broker.listeners), None)
        if chosen is not None:
            servers.append(join_address(chosen.host, chosen.port))
    if not servers:
        raise NoBrokerError(listener)
    return tuple(servers)


def _payloads(batch: pa.RecordBatch, name: str) -> list[bytes | None]:
    return batch.column(name).cast(pa.binary()).to_pylist()


def _headers_of(rows: list[dict[str, object]] | None) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    for row in rows or ():
        name, content = row["key"], row["value"]
        if not isinstance(name, str) or not isinstance(content, bytes | None):
            raise SchemaError("a header has no key: Kafka needs one")
        headers.append((name, content))
    return headers


@dataclass
class HeldRows(WriterCommitMessage):
    """Rows of one task, as an Arrow stream."""

    stream: bytes
    query_id: str


@dataclass(frozen=True, slots=True)
class BatchName:
    """Name of a batch: at most one transaction with it is committed."""

    application: str
    batch: int
    query_id: str
    """Id of the streaming query that numbers the batches; empty for jobs."""

    @property
    def group(self) -> str:
        """Name of the transaction and of the consumer group."""
        return PREFIX + self.application


def hold_rows(
    batches: Iterable[pa.RecordBatch], options: TopicWriteOptions, columns: Columns
) -> HeldRows:
    """Return the rows of one task. Raises SchemaError, TooManyRowsError."""
    sink = pa.BufferOutputStream()
    writer: pa.RecordBatchStreamWriter | None = None
    for batch in batches:
        for _ in rows_of(batch, columns, options.topic):
            pass  # a row that cannot be a record is an error of its task
        if writer is None:
            writer = pa.ipc.new_stream(sink, batch.schema)
        writer.write_batch(batch)
        _require_room(sink.tell())
    if writer is None:
        return HeldRows(b"", query_id_of_task())
    writer.close()
    return HeldRows(sink.getvalue().to_pybytes(), query_id_of_task())


def append_once(
    held: Sequence[HeldRows],
    options: TopicWriteOptions,
    columns: Columns,
    servers: Sequence[str],
    name: BatchName,
) -> None:
    """Append the rows of all tasks, in the order of the tasks, unless this batch was appended
    before. Raises TransactionError, TooManyRowsError, OldBatchError, OtherQueryError.
    """
    streams = [rows.stream for rows in held if rows.stream]
    _require_room(sum(map(len, streams)))
    if not streams:
        return

    async def append(_: TopicServices) -> None:
        producer = producer_of(
            options,
            servers,
            transactional_id=name.group,
            transaction_timeout_ms=TRANSACTION_TIMEOUT_MS,
        )
        try:
            async with asyncio.timeout(APPEND_TIMEOUT_S):
                work = partial(_append, producer, streams, options, columns, servers, name)
                await asyncio.to_thread(work)  # some calls of the producer have no time limit
        except TimeoutError:
            why = f"brokers did not respond within {APPEND_TIMEOUT_S:.0f} s"
            raise TransactionError(name.application, name.batch, why, servers) from None
        except KafkaError as error:
            why = f"{type(error).__name__}: {error}"
            raise TransactionError(name.application, name.batch, why, servers) from error
        finally:
            producer.close(timeout=0)  # also ends the thread of a call that got no answer

    access_of(options.client).call("appending a batch", append, 2 * APPEND_TIMEOUT_S)


def _append(
    producer: KafkaProducer,
    streams: Sequence[bytes],
    options: TopicWriteOptions,
    columns: Columns,
    servers: Sequence[str],
    name: BatchName,
) -> None:
    producer.init_transactions()
    place = TopicPartition(options.topic, 0)
    if is_appended(_recorded(place, options, servers, name), name, options.topic):
        _log.warning(
            "topic %r: batch %d of application %r was appended before: nothing was appended now",
            options.topic,
            name.batch,
            name.application,
        )
        return
    producer.begin_transaction()
    try:
        sending = Sending(producer)
        for batch in _batches(streams):
            for row in rows_of(batch, columns, options.topic):
                sending.send(row)
        sending.wait_for_all()
        done = OffsetAndMetadata(name.batch, name.query_id, -1)
        producer.send_offsets_to_transaction({place: done}, name.group)
    except KafkaError:
        with suppress(KafkaError):  # readers wait for an open transaction
            producer.abort_transaction()
        raise
    producer.commit_transaction()


def _recorded(
    place: TopicPartition, options: TopicWriteOptions, servers: Sequence[str], name: BatchName
) -> OffsetAndMetadata | None:
    """Return the number of the last appended batch, with the id of its query."""
    consumer = KafkaConsumer(
        bootstrap_servers=list(servers),
        group_id=name.group,
        enable_auto_commit=False,
        isolation_level="read_committed",
        **kafka_settings(identity_of(options.client.metadata)),
    )
    try:
        return consumer.committed(place, metadata=True, timeout_ms=RECORD_TIMEOUT_MS)
    finally:
        consumer.close(autocommit=False)


def is_appended(last: OffsetAndMetadata | None, name: BatchName, topic: str) -> bool:
    """Return whether a batch is the last one that was appended. Raises OldBatchError,
    OtherQueryError.
    """
    if last is None:
        return False
    if last.metadata != name.query_id:
        owner = f"query {last.metadata}" if last.metadata else "jobs without a query"
        raise OtherQueryError(
            f"application {name.application!r} of topic {topic!r} belongs to {owner}, whose last "
            f"batch is {last.offset}: nothing was appended"
        )
    if last.offset > name.batch:
        raise OldBatchError(f"topic {topic!r}", name.application, name.batch, last.offset)
    return bool(last.offset == name.batch)


def _batches(streams: Sequence[bytes]) -> Iterator[pa.RecordBatch]:
    for stream in streams:
        yield from pa.ipc.open_stream(stream)


def _require_room(size: int) -> None:
    if size > HELD_BYTES_MAX:
        raise TooManyRowsError(size, HELD_BYTES_MAX)


class _OnceWriter(TopicTasks):
    """Work of the tasks that append nothing."""

    @sentence_first()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Return one task's rows to the driver."""
        return hold_rows(iterator, self._options, self._columns)

    def _append(self, held: Sequence[HeldRows], name: BatchName) -> None:
        append_once(held, self._options, self._columns, self._servers, name)


class OnceBatchWriter(_OnceWriter, DataSourceArrowWriter):
    """Writer of one batch job."""

    def __init__(
        self, options: TopicWriteOptions, columns: Columns, servers: Sequence[str]
    ) -> None:
        super().__init__(options, columns, servers)
        require_number(options.application, options.batch)
        once = str(UUID(bytes=Random().randbytes(16), version=4))
        self._application = options.application or once

    @sentence_first()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the job's rows unless an earlier run with this number did."""
        held = _held(messages)
        query_id = query_id_of_job(task.query_id for task in held)
        self._append(held, BatchName(self._application, self._options.batch or 0, query_id))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: tasks append nothing, and the driver aborts its transaction itself."""


class OnceStreamWriter(_OnceWriter, DataSourceStreamArrowWriter):
    """Writer of one streaming query."""

    @sentence_first()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Append the micro-batch unless an earlier attempt did."""
        held = _held(messages)
        query_id = query_id_of_stream(task.query_id for task in held)
        application = self._options.application or query_id
        self._append(held, BatchName(application, batchId, query_id))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: tasks append nothing, and the driver aborts its transaction itself."""


def _held(messages: Sequence[WriterCommitMessage | None]) -> list[HeldRows]:
    return [message for message in messages if isinstance(message, HeldRows)]
