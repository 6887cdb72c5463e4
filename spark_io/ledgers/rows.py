"""Conversion of received entries to Arrow batches, without a step per entry.

Leaves reading entries to `ledger_client`, and shipping the batches to Spark.

Format of a row: ledger_id int64, entry_id int64, fragment int32 (the number of the ledger's
fragment, from 0), data binary; without `data` if values are not wanted. If links are wanted, also
link int64 (the number of the ledger's link in the chain, null without a chain) and ledger_time,
microseconds since 1970 (when the ledger was created, by its writer's clock).

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
IDS: Final = ("ledger_id bigint", "entry_id bigint", "fragment int")
DATA: Final = "data binary"
LINK: Final = ("link bigint", "ledger_time timestamp")
DDL: Final = ", ".join((*IDS, DATA))

_TIME: Final = pa.timestamp("us", tz="UTC")
_TYPES: Final = {
    "bigint": pa.int64(),
    "int": pa.int32(),
    "binary": pa.binary(),
    "timestamp": _TIME,
}
_POSITIONS = pa.array(range(ROWS_PER_BATCH_MAX + BATCH_ENTRIES_MAX), pa.int64())
"""Numbers of rows of the largest batch; ids of entries are a sum of columns with it."""


class Origin(NamedTuple):
    """Where and when a ledger came from."""

    link: int | None = None
    created_ms: int = 0


NO_ORIGIN: Final = Origin()


class _Run(NamedTuple):
    """Consecutive entries of one ledger and one fragment."""

    origin: Origin
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

    def __init__(
        self, *, bytes_wanted: int, include_value: bool, include_link: bool = False
    ) -> None:
        self._bytes_wanted = bytes_wanted
        self._include_value = include_value
        self._include_link = include_link
        columns = columns_of(include_value=include_value, include_link=include_link)
        self._schema = pa.schema([(name, _TYPES[kind]) for name, kind in map(str.split, columns)])
        self._runs: list[_Run] = []
        self._bytes = 0
        self._count = 0

    def add(
        self, fragments: Sequence[Fragment], batch: EntryBatch, origin: Origin = NO_ORIGIN
    ) -> Iterator[pa.RecordBatch]:
        """Add the next entries, of a ledger with these fragments; yield the batches that they
        fill.
        """
        first, last = batch.first_entry_id, batch.last_entry_id
        for number, begin, end in _by_fragment(fragments, first, last):
            part = batch.clipped(EntryId(begin), EntryId(end))
            assert part is not None, "it is within the batch"
            if self._runs and 2 * part.payload_bytes >= self._bytes_wanted:
                yield from self.finish()  # a large batch alone is not copied
            self._runs.append(_Run(origin, batch.ledger_id, number, begin, len(part), part))
            self._bytes += part.payload_bytes
            self._count += len(part)
            if self._bytes >= self._bytes_wanted or self._count >= ROWS_PER_BATCH_MAX:
                yield from self.finish()

    def add_ids(
        self,
        fragments: Sequence[Fragment],
        ledger_id: int,
        first: int,
        last: int,
        origin: Origin = NO_ORIGIN,
    ) -> Iterator[pa.RecordBatch]:
        """Add the ids of the next entries; yield the batches that they fill."""
        for number, begin, end in _by_fragment(fragments, first, last):
            at = begin
            while at <= end:
                count = min(end - at + 1, ROWS_PER_BATCH_MAX - self._count)
                self._runs.append(_Run(origin, ledger_id, number, at, count, None))
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
        for _, ledger_id, fragment, first, count, _ in runs:
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
        if self._include_link:
            columns += _origins(runs)
        yield pa.RecordBatch.from_arrays(columns, schema=self._schema)


def columns_of(*, include_value: bool, include_link: bool) -> tuple[str, ...]:
    """Return the columns of a row, each as DDL."""
    return (*IDS, *((DATA,) if include_value else ()), *(LINK if include_link else ()))


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
    inside = [entry_id for entry_id in firsts if first < entry_id <= last]
    for begin, following in pairwise([first, *inside, last + 1]):
        yield bisect_right(firsts, begin) - 1, begin, following - 1


def _origins(runs: Sequence[_Run]) -> list[pa.Array]:
    """Return the columns of links and of times."""
    links, times = array("q"), array("q")
    for run in runs:
        origin = run.origin
        links.extend(array("q", [-1 if origin.link is None else origin.link]) * run.row_count)
        times.extend(array("q", [1_000 * origin.created_ms]) * run.row_count)
    numbers = _whole_numbers(pa.int64(), links)
    return [
        pc.if_else(pc.equal(numbers, -1), pa.scalar(None, pa.int64()), numbers),
        _whole_numbers(_TIME, times),
    ]


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
