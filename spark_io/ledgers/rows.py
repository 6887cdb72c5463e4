"""Conversion of received entries to Arrow batches, without a step per entry.

Leaves reading entries to `ledger_client`, and shipping the batches to Spark.

Format of a row: ledger_id int64, entry_id int64, fragment int32 (the number of the ledger's
fragment, from 0), data binary; without `data` if values are not wanted.

Invariants: a batch holds entries of one fragment, in order; payloads are copied at most once.

Source: Spark design, "Reading": batches of 1-4 MB are the fastest for Spark.
"""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Final

import pyarrow as pa

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


class RowBatches:
    """Collector of consecutive entries of one ledger into Arrow batches of about `bytes_wanted`."""

    def __init__(
        self,
        ledger_id: int,
        fragments: Sequence[Fragment],
        *,
        bytes_wanted: int,
        include_value: bool,
    ) -> None:
        self._ledger_id = ledger_id
        self._firsts = [fragment.first_entry_id for fragment in fragments]
        self._bytes_wanted = bytes_wanted
        self._include_value = include_value
        self._parts: list[EntryBatch] = []
        self._bytes = 0
        self._count = 0
        self._fragment = 0

    def add(self, batch: EntryBatch) -> Iterator[pa.RecordBatch]:
        """Add the next entries; yield the batches that they fill."""
        for part in self._by_fragment(batch):
            fragment = bisect_right(self._firsts, part.first_entry_id) - 1
            if fragment != self._fragment:
                yield from self.finish()
                self._fragment = fragment
            self._parts.append(part)
            self._bytes += part.payload_bytes
            self._count += len(part)
            if self._bytes >= self._bytes_wanted or self._count >= ROWS_PER_BATCH_MAX:
                yield from self.finish()

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the collected rest, if any."""
        if not self._parts:
            return
        parts, self._parts = self._parts, []
        count, self._count, self._bytes = self._count, 0, 0
        first = parts[0].first_entry_id
        columns = [
            pa.repeat(pa.scalar(self._ledger_id, pa.int64()), count),
            _whole_numbers(pa.int64(), array("q", range(first, first + count))),
            pa.repeat(pa.scalar(self._fragment, pa.int32()), count),
        ]
        if self._include_value:
            columns.append(_payloads(parts, count))
        schema = _SCHEMA if self._include_value else _SCHEMA_WITHOUT_DATA
        yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def _by_fragment(self, batch: EntryBatch) -> Iterator[EntryBatch]:
        """Split entries at the begins of fragments."""
        first, last = batch.first_entry_id, batch.last_entry_id
        inside = [each for each in self._firsts if first < each <= last]
        for begin, end in pairwise([first, *inside, last + 1]):
            part = batch.clipped(EntryId(begin), EntryId(end - 1))
            assert part is not None, "it is within the batch"
            yield part


def _payloads(parts: Sequence[EntryBatch], count: int) -> pa.Array:
    """Return a binary column over received batches; a single batch is not copied."""
    received = [part.buffers() for part in parts]
    if len(received) == 1:
        payload, offsets = received[0]
    else:
        payload = memoryview(b"".join(view for view, _ in received))
        lengths = chain.from_iterable(
            map(int.__sub__, offsets[1:], offsets) for _, offsets in received
        )
        offsets = list(accumulate(lengths, initial=0))
    buffers = [None, pa.py_buffer(array("i", offsets)), pa.py_buffer(payload)]
    return pa.Array.from_buffers(pa.binary(), count, buffers)


def _whole_numbers(kind: pa.DataType, values: "array[int]") -> pa.Array:
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(values)])
