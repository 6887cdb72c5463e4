"""Appends of a batch's rows to topics, exactly once: in one transaction of the driver.

Leaves rows and the producer to `topic_write`, and transactions to the brokers.

Tasks append nothing. They hand their rows to the driver with their commit messages, and Spark keeps
the messages of one attempt of each task. The driver appends all rows in one transaction, which also
commits the batch's number as an offset of a consumer group. Transaction and group are named after
the application: the streaming query, or the job.

Before it appends, the driver starts its producer. That fences a driver that still runs, and ends a
transaction that it left. Then the driver reads the group's offset: a batch whose number is recorded
is not appended again.

Invariants: the rows of a batch and its number become visible together or not at all; the number is
read only after the producer started; the rows of a batch have at most `HELD_BYTES_MAX` bytes.

Source: decision 0017; KIP-98; KIP-129.
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
from quire.identity.kafka_settings import kafka_settings
from spark_io.errors import OptionError, TooManyRowsError, TransactionError
from spark_io.sentence_first import sentence_first
from spark_io.streaming_query import query_id_of_task
from spark_io.topics.topic_access import TopicServices, access_of
from spark_io.topics.topic_options import TopicWriteOptions
from spark_io.topics.topic_write import Columns, Sending, TopicTasks, producer_of, rows_of

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
class HeldRows(WriterCommitMessage):
    """Rows of one task, as an Arrow stream."""

    stream: bytes
    query_id: str


@dataclass(frozen=True, slots=True)
class BatchName:
    """Name of a batch: at most one transaction with it is committed."""

    application: str
    batch: int

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
    before. Raises TransactionError, TooManyRowsError.
    """
    streams = [each.stream for each in held if each.stream]
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
    last = _recorded(place, options, servers, name)
    if last >= name.batch:
        _log.warning(
            "topic %r: batch %d of application %r is not after batch %d, the last one that was "
            "appended: nothing was appended now",
            options.topic,
            name.batch,
            name.application,
            last,
        )
        return
    producer.begin_transaction()
    try:
        sending = Sending(producer)
        for batch in _batches(streams):
            for row in rows_of(batch, columns, options.topic):
                sending.send(row)
        sending.wait_for_all()
        done = OffsetAndMetadata(name.batch, f"batch {name.batch}", -1)
        producer.send_offsets_to_transaction({place: done}, name.group)
    except KafkaError:
        with suppress(KafkaError):  # readers wait for an open transaction
            producer.abort_transaction()
        raise
    producer.commit_transaction()


def _recorded(
    place: TopicPartition, options: TopicWriteOptions, servers: Sequence[str], name: BatchName
) -> int:
    """Return the number of the last appended batch; -1 if none is recorded."""
    consumer = KafkaConsumer(
        bootstrap_servers=list(servers),
        group_id=name.group,
        enable_auto_commit=False,
        isolation_level="read_committed",
        **kafka_settings(identity_of(options.client.metadata)),
    )
    try:
        found = consumer.committed(place, timeout_ms=RECORD_TIMEOUT_MS)
    finally:
        consumer.close(autocommit=False)
    return -1 if found is None else int(found)


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
        if options.application and options.batch is None:
            why = "missing: a batch job with txnAppId must number its runs 0, 1, 2, ..."
            raise OptionError("txnVersion", why)
        once = str(UUID(bytes=Random().randbytes(16), version=4))
        self._name = BatchName(options.application or once, options.batch or 0)

    @sentence_first()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Append the job's rows unless an earlier run with this number did."""
        self._append(_held(messages), self._name)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Do nothing: tasks append nothing, and the driver aborts its transaction itself."""


class OnceStreamWriter(_OnceWriter, DataSourceStreamArrowWriter):
    """Writer of one streaming query."""

    @sentence_first()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Append the micro-batch unless an earlier attempt did."""
        held = _held(messages)
        application = self._options.application or next((each.query_id for each in held), "")
        if held and not application:
            why = "missing: Spark did not give the id of the streaming query"
            raise OptionError("txnAppId", why)
        self._append(held, BatchName(application, batchId))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Do nothing: tasks append nothing, and the driver aborts its transaction itself."""


def _held(messages: Sequence[WriterCommitMessage | None]) -> list[HeldRows]:
    return [each for each in messages if isinstance(each, HeldRows)]
