"""Conversion of received entries to Arrow batches, without a step per entry.

Leaves reading entries to `ledger_client`, and shipping the batches to Spark.

Format of a row: ledger_id int64, entry_id int64, fragment int32 (the number of the ledger's
fragment, from 0), data binary; without `data` if values are not wanted.

Invariants: rows come in the order of the entries; small ledgers share a batch; payloads are copied
at most once, and those of a large received batch are not copied.

Source: Spark design, "Reading": batches of 1-4 MB are the fastest for Spark.
"""

import sys
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bookie.wire.batch import BATCH_ENTRIES_MAX
from ledger_client import EntryBatch, Fragment
from metadata.ids import EntryId

ROWS_PER_BATCH_MAX: Final = 65_536
DDL: Final = "ledger_id bigint, entry_id bigint, fragment int, data binary"
DDL_WITHOUT_DATA: Final = "ledger_id bigint, entry_id bigint, fragment int"

_SCHEMA = pa.schema(
    [
        ("ledger_id", pa.int64()),
        ("entry_id", pa.int64()),
        ("fragment", pa.int32()),
        ("data", pa.binary()),
    ]
)
_SCHEMA_WITHOUT_DATA = pa.schema(list(_SCHEMA)[:3])
_POSITIONS = pa.array(range(ROWS_PER_BATCH_MAX + BATCH_ENTRIES_MAX), pa.int64())
"""Numbers of rows of the largest batch; ids of entries are a sum of columns with it."""


class _Run(NamedTuple):
    """Consecutive entries of one ledger and one fragment."""

    ledger_id: int
    fragment: int
    first: int
    row_count: int
    batch: EntryBatch | None
    """The payloads; None if they are not wanted."""


class RowBatches:
    """Collector of entries, of one ledger after the other, into Arrow batches of about
    `bytes_wanted`.
    """

    def __init__(self, *, bytes_wanted: int, include_value: bool) -> None:
        self._bytes_wanted = bytes_wanted
        self._include_value = include_value
        self._runs: list[_Run] = []
        self._bytes = 0
        self._count = 0

    def add(self, fragments: Sequence[Fragment], batch: EntryBatch) -> Iterator[pa.RecordBatch]:
        """Add the next entries, of a ledger with these fragments; yield the batches that they
        fill.
        """
        first, last = batch.first_entry_id, batch.last_entry_id
        for number, begin, end in _by_fragment(fragments, first, last):
            part = batch.clipped(EntryId(begin), EntryId(end))
            assert part is not None, "it is within the batch"
            if self._runs and 2 * part.payload_bytes >= self._bytes_wanted:
                yield from self.finish()  # a large batch alone is not copied
            self._runs.append(_Run(batch.ledger_id, number, begin, len(part), part))
            self._bytes += part.payload_bytes
            self._count += len(part)
            if self._bytes >= self._bytes_wanted or self._count >= ROWS_PER_BATCH_MAX:
                yield from self.finish()

    def add_ids(
        self, fragments: Sequence[Fragment], ledger_id: int, first: int, last: int
    ) -> Iterator[pa.RecordBatch]:
        """Add the ids of the next entries; yield the batches that they fill."""
        for number, begin, end in _by_fragment(fragments, first, last):
            at = begin
            while at <= end:
                count = min(end - at + 1, ROWS_PER_BATCH_MAX - self._count)
                self._runs.append(_Run(ledger_id, number, at, count, None))
                self._count += count
                at += count
                if self._count == ROWS_PER_BATCH_MAX:
                    yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the collected rest, if any."""
        if not self._runs:
            return
        runs, self._runs = self._runs, []
        self._count, self._bytes = 0, 0
        ledger_ids, steps, numbers = array("q"), array("q"), array("i")
        for ledger_id, fragment, first, count, _ in runs:
            steps.extend(array("q", [first - len(steps)]) * count)
            ledger_ids.extend(array("q", [ledger_id]) * count)
            numbers.extend(array("i", [fragment]) * count)
        positions = _POSITIONS[: len(steps)]
        columns = [
            _whole_numbers(pa.int64(), ledger_ids),
            pc.add(positions, _whole_numbers(pa.int64(), steps)),
            _whole_numbers(pa.int32(), numbers),
        ]
        if self._include_value:
            columns.append(_payloads([run.batch for run in runs if run.batch is not None]))
        schema = _SCHEMA if self._include_value else _SCHEMA_WITHOUT_DATA
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _by_fragment(
    fragments: Sequence[Fragment], first: int, last: int
) -> Iterator[tuple[int, int, int]]:
    """Split entries at the begins of fragments: yield the number of each fragment with its first
    and last entry.
    """
    if len(fragments) == 1:
        yield 0, first, last
        return
    firsts = [fragment.first_entry_id for fragment in fragments]
    inside = [each for each in firsts if first < each <= last]
    for begin, following in pairwise([first, *inside, last + 1]):
        yield bisect_right(firsts, begin) - 1, begin, following - 1


def _payloads(parts: Sequence[EntryBatch]) -> pa.Array:
    """Return a binary column over received batches; a single batch is not copied."""
    lengths = array("i")
    for part in parts:
        lengths.frombytes(part.packed_lengths)
    if sys.byteorder == "big":
        lengths.byteswap()
    lengths.insert(0, 0)
    offsets = pc.cumulative_sum(_whole_numbers(pa.int32(), lengths))
    if len(parts) == 1:
        payload = parts[0].payload
    else:
        payload = memoryview(b"".join([part.payload for part in parts]))
    buffers = [None, offsets.buffers()[1], pa.py_buffer(payload)]
    return pa.Array.from_buffers(pa.binary(), len(lengths) - 1, buffers)


def _whole_numbers(kind: pa.DataType, values: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
