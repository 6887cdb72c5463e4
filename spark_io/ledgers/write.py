"""Writes of a DataFrame's rows into ledgers, published in a chain exactly once.

Leaves replication to the ledger client, and the publication itself to `ledger_client.chains`.

Each attempt of each task writes separate ledgers and closes them. The driver publishes the ledgers
of the attempts that Spark chose, all in one step together with (application, batch). Ledgers that
were never published are collected after a grace period (`quire chain collect`).

The name of an application belongs to the streaming query that published its first batch. Another
query, also the same program with a new checkpoint, has other rows under the same numbers: its
batches are refused.

Invariants: a batch is published at most once, however often it is run; a ledger that may have been
published is never deleted; no rows are left out because another query published their number.

Source: Spark design, "Writing: exactly once".
"""

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from itertools import chain as joined
from typing import Final

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ledger_client import ApplicationTakenError, LedgerError
from metadata.ledgers.chain import LinkedLedger
from spark_io.common_options import require_number
from spark_io.errors import OldBatchError, OtherQueryError, SchemaError
from spark_io.ledgers.options import WriteOptions, keys_to_write
from spark_io.workers import (
    client_of,
    query_id_of_job,
    query_id_of_stream,
    query_id_of_task,
    sentence_first,
)

PUBLISH_TIMEOUT_S: Final = 120.0

_log = logging.getLogger(__name__)


@dataclass
class WrittenLedgers(WriterCommitMessage):
    """Ledgers that one task wrote."""

    ledgers: tuple[LinkedLedger, ...]
    since_index: int
    """Number of the chain's next link before the task wrote."""
    chain_token: bytes
    """Identity of the chain that the number belongs to."""
    query_id: str
    """Id of the streaming query; empty in a batch job."""


def write_rows(batches: Iterable[pa.RecordBatch], options: WriteOptions) -> WrittenLedgers:
    """Append the rows of one task to ledgers, in order, and close them.

    On return every row is on its ack quorum. A task without rows creates no ledger.
    """
    client = client_of(options.client)
    chain = client.chain(options.chain)
    before = chain.info()
    query_id = query_id_of_task()
    custom = chain.custom_metadata | ({"spark.query": query_id} if query_id else {})
    rows = _Rows(map(_payloads, batches), options.ledger_bytes_max)
    written: list[LinkedLedger] = []
    while rows.has_more():
        with client.create_ledger(
            options.quorum,
            digest=options.digest,
            password=options.client.password,
            metadata=custom,
            encryption=keys_to_write(options),
        ) as writer:
            writer.append_many(rows)
        info = writer.info
        written.append(LinkedLedger(info.id, info.created_ms, info.last_entry_id, info.length))
    return WrittenLedgers(tuple(written), before.next_index, before.creation_token, query_id)


def publish(
    messages: Sequence[WriterCommitMessage | None],
    options: WriteOptions,
    *,
    application: str,
    batch: int | None,
    query_id: str,
    replaces: bool,
) -> None:
    """Publish the ledgers of the tasks; publish nothing if this batch was published before.

    Raises OldBatchError if a later batch was, OtherQueryError if another query numbers the batches
    of the application.
    """
    written = _written(messages)
    chain = client_of(options.client).chain(options.chain)
    ledgers = [ledger for written_ledgers in written for ledger in written_ledgers.ledgers]
    if not ledgers and not replaces:
        return
    try:
        done = chain.publish(
            ledgers,
            application=application,
            batch=batch,
            query=query_id,
            replaces=replaces,
            timeout=PUBLISH_TIMEOUT_S,
        )
    except ApplicationTakenError as error:
        raise OtherQueryError(str(error)) from error
    if not done.is_new:
        _withdraw(written, options)
        assert batch is not None, "only numbered batches are compared"
        require_newest(options, application, batch)
        _log.warning(
            "chain %r: batch %d of application %r was published before: nothing was published now",
            options.chain,
            batch,
            application,
        )


def require_newest(options: WriteOptions, application: str, batch: int) -> None:
    """Raise OldBatchError if a later batch of the application was published."""
    last = client_of(options.client).chain(options.chain).last_batch(application)
    if last is not None and last > batch:
        raise OldBatchError(f"chain {options.chain!r}", application, batch, last)


def withdraw(messages: Sequence[WriterCommitMessage | None], options: WriteOptions) -> None:
    """Delete the ledgers of the tasks unless they were published."""
    try:
        _withdraw(_written(messages), options)
    except LedgerError:
        return  # it is collected later


def make_chain(options: WriteOptions) -> None:
    """Create the chain if it is missing; this fails early if the cluster cannot be reached, or if a
    later batch was published.
    """
    client_of(options.client).chain(options.chain).create(exist_ok=True)
    if options.batch is not None:
        require_newest(options, options.application, options.batch)


class LedgerBatchWriter(DataSourceArrowWriter):
    """Writer of one batch job: tasks write, the driver publishes."""

    def __init__(self, options: WriteOptions, *, overwrite: bool) -> None:
        require_number(options.application, options.batch)
        self._options = options
        self._overwrite = overwrite

    @sentence_first()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows."""
        return write_rows(iterator, self._options)

    @sentence_first()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """Publish the job's ledgers as one link, in the order of the partitions."""
        options = self._options
        publish(
            messages,
            options,
            application=options.application,
            batch=options.batch,
            query_id=query_id_of_job(task.query_id for task in _written(messages)),
            replaces=self._overwrite,
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """Delete the job's ledgers unless they were published."""
        withdraw(messages, self._options)


class LedgerStreamWriter(DataSourceStreamArrowWriter):
    """Writer of one streaming query: each micro-batch is one link."""

    def __init__(self, options: WriteOptions, *, overwrite: bool) -> None:
        self._options = options
        self._overwrite = overwrite

    @sentence_first()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Write one task's rows."""
        return write_rows(iterator, self._options)

    @sentence_first()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Publish the micro-batch unless an earlier attempt did."""
        query_id = query_id_of_stream(task.query_id for task in _written(messages))
        publish(
            messages,
            self._options,
            application=self._options.application or query_id,
            batch=batchId,
            query_id=query_id,
            replaces=self._overwrite,
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Delete the micro-batch's ledgers unless they were published."""
        withdraw(messages, self._options)


@dataclass
class _Rows:
    """Rows of a task, divided into one ledger after the other."""

    batches: Iterator[list[bytes]]
    ledger_bytes_max: int
    _next: list[bytes] = field(default_factory=list)

    def has_more(self) -> bool:
        """Return whether another ledger is needed."""
        while not self._next:
            batch = next(self.batches, None)
            if batch is None:
                return False
            self._next = batch
        return True

    def __iter__(self) -> Iterator[bytes]:
        """Yield rows of at most `ledger_bytes_max` bytes together, or one larger row."""
        return joined.from_iterable(self._of_one_ledger())

    def _of_one_ledger(self) -> Iterator[list[bytes]]:
        room = self.ledger_bytes_max
        while self.has_more():
            batch, self._next = self._next, []
            size = sum(map(len, batch))
            if size > room:
                fitting = bisect_right(list(accumulate(map(len, batch))), room)
                if fitting == 0 and room == self.ledger_bytes_max:
                    fitting = 1  # a row larger than the limit of a ledger
                batch, self._next = batch[:fitting], batch[fitting:]
                yield batch
                return
            room -= size
            yield batch


def _payloads(batch: pa.RecordBatch) -> list[bytes]:
    """Copy the rows' payloads out of Spark's batch."""
    column = batch.column(0)
    if column.null_count:
        raise SchemaError("a row has no data: an entry may be empty, but not null")
    _, offsets, data = column.cast(pa.binary()).buffers()
    if data is None:
        return [b""] * len(column)
    bounds = memoryview(offsets).cast("i")[column.offset : column.offset + len(column) + 1]
    payload = data.to_pybytes()  # a slice of bytes costs a third of a slice of a view
    return [payload[start:stop] for start, stop in pairwise(bounds)]


def _written(messages: Sequence[WriterCommitMessage | None]) -> list[WrittenLedgers]:
    return [message for message in messages if isinstance(message, WrittenLedgers)]


def _withdraw(written: Sequence[WrittenLedgers], options: WriteOptions) -> None:
    ledger_ids = [ledger.ledger_id for ledgers in written for ledger in ledgers.ledgers]
    if ledger_ids:
        chain = client_of(options.client).chain(options.chain)
        token = chain.info().creation_token
        is_same = all(ledgers.chain_token == token for ledgers in written)
        since = min(ledgers.since_index for ledgers in written) if is_same else 0
        chain.withdraw(ledger_ids, since_index=since)
