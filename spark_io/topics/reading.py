"""Reads of ranges of a topic's records inside a Spark task, as Arrow batches.

Leaves finding replicas and checking digests to the ledger client, and splitting batches into rows
to `rows`.

The planned entries were confirmed when the driver planned them, so they are read without another
query for the LAC.

Invariants: markers, state entries and records of aborted transactions are never among the rows;
nothing else is left out silently: unreadable records are an error that names topic, partition and
offsets, or, with failOnDataLoss=false, a line in the executor's log. Each planned ledger has the
identity that it had when it was planned; a ledger belongs to one partition of one topic.

Source: Spark design, "Reading"; KIP-98.
"""

import logging
from collections.abc import Iterable, Iterator

import pyarrow as pa

from broker_layer.kafka.record_batch import RecordBatchError, read_header
from broker_layer.log.state.state_entry import is_state_entry
from ledger_client import (
    DigestMismatchError,
    EntryLostError,
    EntryNotFoundError,
    LedgerError,
    LedgerNotFoundError,
)
from ledger_client.sync import LedgerClient
from spark_io.errors import RecordsLostError, RecordsUnreadableError
from spark_io.topics.offsets import AbortedRecords, TopicRange
from spark_io.topics.options import TopicReadOptions
from spark_io.topics.rows import TopicRows
from spark_io.workers import client_of

_log = logging.getLogger(__name__)


def read_topic_ranges(
    ranges: Iterable[TopicRange], options: TopicReadOptions
) -> Iterator[pa.RecordBatch]:
    """Yield the records of all ranges, in order. Raises RecordsLostError,
    RecordsUnreadableError.
    """
    client = client_of(options.client)
    for range_ in ranges:
        yield from _RangeReading(range_, options).read(client)


class _RangeReading:
    """Read of one range."""

    def __init__(self, wanted: TopicRange, options: TopicReadOptions) -> None:
        self._wanted = wanted
        self._options = options
        self._aborted = AbortedRecords(wanted.aborted)
        self._next_offset = wanted.first_offset
        self._rows = TopicRows(
            wanted.partition,
            bytes_wanted=options.arrow_batch_bytes,
            include_headers=options.include_headers,
        )

    def read(self, client: LedgerClient) -> Iterator[pa.RecordBatch]:
        """Yield the range's records."""
        wanted = self._wanted
        try:
            yield from self._read(client)
        except LedgerNotFoundError as error:
            yield from self._rows.finish()
            why = f"ledger {wanted.ledger_id} was deleted while the query ran ({error})"
            self._lose(why, error)
        except LedgerError as error:
            text = (
                f"entries {wanted.first} to {wanted.last} of ledger {wanted.ledger_id}: "
                f"{error.message} (the same task may succeed later)"
            )
            first = min(self._next_offset, wanted.end_offset - 1)
            raise RecordsUnreadableError(
                *wanted.partition, first, wanted.end_offset, text
            ) from error

    def _read(self, client: LedgerClient) -> Iterator[pa.RecordBatch]:
        wanted, password = self._wanted, self._options.client.password
        with client.open_ledger(wanted.ledger_id, password=password) as reader:
            if reader.info.creation_token != wanted.creation_token:
                self._lose(f"ledger {wanted.ledger_id} was deleted, and another one has its id")
                return
            at = wanted.first
            while at <= wanted.last:
                try:
                    for batch in reader.read_unconfirmed(at, wanted.last):
                        payload, offsets = batch.buffers()
                        for index in range(len(batch)):
                            data = payload[offsets[index] : offsets[index + 1]]
                            yield from self._take(at + index, data)
                        at = batch.last_entry_id + 1
                except (EntryNotFoundError, EntryLostError, DigestMismatchError) as error:
                    yield from self._rows.finish()
                    lost = at if error.entry_id is None else max(at, error.entry_id)
                    self._lose(f"entry {lost} of ledger {wanted.ledger_id}: {error.message}", error)
                    at = (error.lost_last if isinstance(error, EntryLostError) else lost) + 1
        yield from self._rows.finish()

    def _take(self, entry_id: int, data: memoryview) -> Iterator[pa.RecordBatch]:
        """Add the records of one entry, if it has any in the range."""
        wanted = self._wanted
        if is_state_entry(data):
            return
        try:
            header = read_header(data)
            if header.last_offset < wanted.first_offset or header.base_offset >= wanted.end_offset:
                return
            self._next_offset = header.next_offset
            if header.is_control:
                return
            if header.is_transactional and self._aborted.holds(
                header.producer_id, header.base_offset
            ):
                return
            yield from self._rows.add(header, bytes(data), wanted.first_offset, wanted.end_offset)
        except RecordBatchError as error:
            yield from self._rows.finish()
            self._lose(f"entry {entry_id} of ledger {wanted.ledger_id}: {error}", error)

    def _lose(self, why: str, error: Exception | None = None) -> None:
        """Raise or log that records from here on are lost. Their number is unknown, because the
        offsets are in the lost entry.
        """
        wanted = self._wanted
        first = min(self._next_offset, wanted.end_offset - 1)
        if self._options.fail_on_data_loss:
            raise RecordsLostError(*wanted.partition, first, wanted.end_offset, why) from error
        _log.warning(
            "topic %r, partition %d: left out records from offset %d to below %d: %s",
            *wanted.partition,
            first,
            wanted.end_offset,
            why,
        )
