"""Reads of ranges of entries: from the recent entries, else through the index with as few
contiguous reads as possible. Keeps the damaged ranges that are found.

Leaves permission, fences and the order of negatives to `bookie.storage.ledger_reads`, and reporting
damage to `bookie.scrubber`.

Invariants: every returned batch was checked by its CRC, or never left memory; a damaged or missing
record is UNKNOWN, never negative, and is noted as bad.
Source: protocol rules 2.4, 8.3, 9.12; storage design, "Index".
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from bookie.errors import DamagedRecordError, DescriptorsExhaustedError, DiskFailedError
from bookie.index import replica_state
from bookie.index.index import Index
from bookie.index.index_runs import Run
from bookie.index.replica_state import ReplicaState
from bookie.log import records
from bookie.log.records import RECORD_HEADER_BYTES, RecordKind
from bookie.log.segments import Segments
from bookie.storage.answers import EntryRangesResult, ReadResult
from bookie.storage.recent import RecentEntries
from bookie.wire.batch import BatchView, Buffer
from bookie.wire.errors import BatchError
from bookie.wire.messages import Status
from metadata.callbacks import Callbacks
from metadata.ids import EntryId, LedgerId
from metadata.repair.scrub import BAD_RANGES_MAX, BadRange
from metadata.store.interface import Cancel


class BadRanges:
    """Damaged ranges of one bookie that are not repaired yet, by ledger.

    Invariants: the ranges of a ledger are ascending, without overlap, and not adjacent; at most
    BAD_RANGES_MAX ranges are added. A range may hold entries that are not damaged: a repair
    compares each entry with the stored copy.
    """

    def __init__(self) -> None:
        self._by_ledger: dict[int, list[tuple[int, int]]] = {}
        self._callbacks = Callbacks[()]()

    @property
    def range_count(self) -> int:
        """Number of ranges."""
        return sum(map(len, self._by_ledger.values()))

    @property
    def entry_count(self) -> int:
        """Number of entries in all ranges."""
        return sum(
            last - first + 1 for ranges in self._by_ledger.values() for first, last in ranges
        )

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back after each change."""
        return self._callbacks.add(callback)

    def report(self) -> tuple[BadRange, ...]:
        """Return the ranges in the order of ledgers and entries, at most BAD_RANGES_MAX."""
        bad = [
            BadRange(LedgerId(ledger_id), EntryId(first), EntryId(last))
            for ledger_id, ranges in sorted(self._by_ledger.items())
            for first, last in ranges
        ]
        return tuple(bad[:BAD_RANGES_MAX])

    def restore(self, reported: Iterable[BadRange]) -> None:
        """Add the ranges that were reported before a restart."""
        for bad_range in reported:
            self.note(*bad_range)

    def last_of(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the last entry of the range that holds an entry; None if no range does."""
        ranges = self._by_ledger.get(ledger_id, ())
        return next((last for first, last in ranges if first <= entry_id <= last), None)

    def overlap(self, ledger_id: int, first: int, last: int) -> bool:
        """Return whether first..last holds an entry of a range."""
        ranges = self._by_ledger.get(ledger_id, ())
        return any(low <= last and high >= first for low, high in ranges)

    def note(self, ledger_id: int, first: int, last: int) -> None:
        """Add a range; a new one is ignored when there are BAD_RANGES_MAX already."""
        ranges = self._by_ledger.get(ledger_id, [])
        touching = [range_ for range_ in ranges if range_[0] <= last + 1 and range_[1] + 1 >= first]
        if not touching and self.range_count >= BAD_RANGES_MAX:
            return
        joined = (
            min([first, *(low for low, _ in touching)]),
            max([last, *(high for _, high in touching)]),
        )
        self._set(ledger_id, sorted([joined, *(span for span in ranges if span not in touching)]))

    def clear(self, ledger_id: int, first: int, last: int) -> None:
        """Remove first..last: good copies are stored, or were read."""
        ranges = self._by_ledger.get(ledger_id)
        if ranges is None:
            return
        left: list[tuple[int, int]] = []
        for low, high in ranges:
            parts = ((low, min(high, first - 1)), (max(low, last + 1), high))
            left += [part for part in parts if part[0] <= part[1]]
        self._set(ledger_id, sorted(dict.fromkeys(left)))

    def drop(self, ledger_id: int) -> None:
        """Remove every range of a ledger that is not held any more."""
        self._set(ledger_id, [])

    def _set(self, ledger_id: int, ranges: list[tuple[int, int]]) -> None:
        if ranges == self._by_ledger.get(ledger_id, []):
            return
        if ranges:
            self._by_ledger[ledger_id] = ranges
        else:
            del self._by_ledger[ledger_id]
        self._callbacks.notify()


LOOKUP_RUNS: Final = 64
FIRST_READ_BYTES: Final = 64 * 1024
"""Size of the first read within a long run; more if more may be returned."""
LOOKUPS_MAX: Final = 4
"""Maximum number of repeated look-ups of a run because cleaning moved it."""
BATCHES_PER_ANSWER_MAX: Final = 2_048
"""Maximum number of batches in one answer: each costs some microseconds of the event loop,
independent of its size. The reader requests the rest.
"""


@dataclass(slots=True)
class _Wanted:
    """Progress of one read: what is left to read, and what was read."""

    ledger_id: int
    next_entry_id: int
    room: int
    batches: list[Buffer] = field(default_factory=list)
    suspect_last: int = -1
    """Last entry of the record that is being checked, or that is missing."""

    @property
    def is_full(self) -> bool:
        """Whether the answer has its maximum length, and at least one batch."""
        return bool(self.batches) and (
            self.room <= 0 or len(self.batches) >= BATCHES_PER_ANSWER_MAX
        )


class StorageReader:
    """Reader for all ledgers."""

    def __init__(
        self,
        index: Index,
        segments: Segments,
        recent: RecentEntries,
        bad: BadRanges,
        *,
        drops_cached: bool = False,
    ) -> None:
        """`bad`: gets the damaged ranges that are found. `drops_cached`: what is read from the disk
        does not stay in the system's page cache.
        """
        self.bad = bad
        self.entries_read = 0
        self.bytes_read = 0
        self.unproven: dict[int, int] = {}
        """Ledgers whose runs the index cannot prove complete, each with an entry that was not
        found.
        """
        self._index = index
        self._segments = segments
        self._recent = recent
        self._drops_cached = drops_cached

    def read_nowait(
        self, state: ReplicaState, first: int, last: int, bytes_max: int
    ) -> ReadResult | None:
        """Return the answer if memory has it, else None."""
        recent = self._recent.find(state.ledger_id, first, last, bytes_max, BATCHES_PER_ANSWER_MAX)
        if recent:
            end = recent[-1].header.last_entry_id
            next_entry_id = min(end, last) + 1
            batches = tuple([_cut(batch, first, last) for batch in recent])
            self._count(batches, next_entry_id - first)
            return self._result(state, Status.OK, next_entry_id, batches)
        if first > state.highest and not state.queued_count:
            return self._result(state, self._negative(state), first, ())
        return None

    async def read(self, state: ReplicaState, first: int, last: int, bytes_max: int) -> ReadResult:
        """Return the answer, from the disk if necessary; UNKNOWN while no descriptor is free."""
        try:
            return await self.read_or_raise(state, first, last, bytes_max)
        except DescriptorsExhaustedError:  # nothing is damaged: the reader may repeat the request
            return self._result(state, Status.UNKNOWN, first, ())

    async def read_or_raise(
        self, state: ReplicaState, first: int, last: int, bytes_max: int
    ) -> ReadResult:
        """Return the answer, from the disk if necessary. Raises DescriptorsExhaustedError, so that
        UNKNOWN means that a later read fails too.
        """
        wanted = _Wanted(state.ledger_id, first, bytes_max)
        batches = wanted.batches
        status = Status.OK
        attempts = LOOKUPS_MAX
        while wanted.next_entry_id <= last and not wanted.is_full:
            start = wanted.next_entry_id
            lookup = await self._index.look_up(
                state.ledger_id, start, last, state.indexed_highest, LOOKUP_RUNS
            )
            status = await self._read_runs(lookup.runs, wanted)
            if wanted.next_entry_id > start:
                continue
            if status is Status.UNKNOWN:
                if not await self._has_moved(state, lookup.runs[0]):
                    self._note_bad(wanted, lookup.runs[0][0])
                elif attempts:
                    attempts -= 1
                    continue
            if status is Status.OK:
                status = self._status_of_absent(
                    state, start, lookup.known_to, is_unproven=lookup.is_unproven
                )
            break
        if wanted.next_entry_id > last or wanted.is_full:
            status = Status.OK
        self._count(batches, wanted.next_entry_id - first)
        return self._result(state, status, wanted.next_entry_id, tuple(batches))

    def _count(self, batches: Sequence[Buffer], entry_count: int) -> None:
        self.entries_read += entry_count
        self.bytes_read += sum(map(len, batches))

    def _status_of_absent(
        self, state: ReplicaState, entry_id: int, known_to: int, *, is_unproven: bool
    ) -> Status:
        """Return the status of an entry that no run covers: a negative needs proof."""
        if entry_id <= known_to:
            return self._negative(state)
        if is_unproven:
            self.unproven[state.ledger_id] = entry_id
        return Status.UNKNOWN

    def _note_bad(self, wanted: _Wanted, run_last: int) -> None:
        """Note the record that holds the next wanted entry; all of the run's rest if the record's
        end is not known.
        """
        first, last = wanted.next_entry_id, wanted.suspect_last
        self.bad.note(wanted.ledger_id, first, last if first <= last < run_last else run_last)

    async def _has_moved(self, state: ReplicaState, run: Run) -> bool:
        place = await self._index.look_up(state.ledger_id, run[1], run[1], state.indexed_highest, 1)
        return bool(place.runs) and place.runs[0][2] != run[2]

    async def _read_runs(self, runs: list[Run], wanted: _Wanted) -> Status:
        """Read runs while they are adjacent; return UNKNOWN when the next entry is in a damaged
        one.
        """
        for run in runs:
            if run[1] > wanted.next_entry_id or wanted.is_full:
                break
            try:
                await self._read_run(run, wanted)
            except (DamagedRecordError, DiskFailedError, BatchError):
                return Status.UNKNOWN
        return Status.OK

    async def _read_run(self, run: Run, wanted: _Wanted) -> None:
        last, _, location, size = run
        segment, position = records.segment_of(location), records.offset_of(location)
        end = position + size
        chunk = min(size, max(FIRST_READ_BYTES, wanted.room + RECORD_HEADER_BYTES))
        while position < end and wanted.next_entry_id <= last and not wanted.is_full:
            asked = min(chunk, end - position)
            data = self._segments.read_nowait(segment, position, asked)
            if data is None:
                data = await self._segments.read(segment, position, asked)
                if self._drops_cached:
                    self._segments.drop_cached(segment, position, len(data))
            taken, needed = _walk(memoryview(data), segment, position, last, wanted)
            is_cut_short = len(data) < asked or position + needed > end
            if not taken and (needed <= len(data) or is_cut_short):
                raise DamagedRecordError(f"segment {segment} at {position}")
            position += taken
            chunk = max(chunk, needed)
        if position >= end and wanted.next_entry_id <= last:
            raise DamagedRecordError(f"a run of segment {segment} that ends at {position}")

    def _negative(self, state: ReplicaState) -> Status:
        return replica_state.negative(state, is_limbo=self._index.is_limbo)

    def _result(
        self, state: ReplicaState, status: Status, next_entry_id: int, batches: tuple[Buffer, ...]
    ) -> ReadResult:
        return ReadResult(
            status, replica_state.advertised_lac(state), EntryId(next_entry_id), batches
        )


def _walk(
    data: memoryview, segment: int, position: int, last: int, wanted: _Wanted
) -> tuple[int, int]:
    """Take the wanted batches from the complete records at the start of `data`. Return the bytes of
    the records passed, and the bytes that the next record needs, 0 when it is damaged. Raises
    BatchError.
    """
    offset = _skip(data, records.lsn_of(segment, position), wanted)
    while wanted.next_entry_id <= last and not wanted.is_full:
        if len(data) - offset < RECORD_HEADER_BYTES:
            return offset, RECORD_HEADER_BYTES
        header = records.decode_header(data, offset, records.lsn_of(segment, position + offset))
        if header is None or header.kind is not RecordKind.ADDS:
            return offset, 0
        if offset + header.size > len(data):
            return offset, header.size
        batch = BatchView(data[offset + RECORD_HEADER_BYTES : offset + header.size])
        offset += header.size
        entries = batch.header
        if entries.ledger_id != wanted.ledger_id:
            raise BatchError("a record of another ledger")
        if entries.last_entry_id < wanted.next_entry_id:
            continue
        if entries.first_entry_id > wanted.next_entry_id:
            wanted.suspect_last = entries.first_entry_id - 1
            raise BatchError("a record is missing from its run")
        wanted.suspect_last = entries.last_entry_id
        batch.verify_crc()
        stop = min(entries.last_entry_id, last)
        cut = _cut(batch, wanted.next_entry_id, stop)
        wanted.batches.append(cut)
        wanted.room -= len(cut)
        wanted.next_entry_id = stop + 1
    return offset, 0


def _skip(data: memoryview, base_lsn: int, wanted: _Wanted) -> int:
    """Return the offset of the record with the next wanted entry, or of the first record that is
    not complete in `data`. Only lengths are used, because a run of a megabyte may hold ten thousand
    records. Return 0 if a field is unexpected: then each record is checked.
    """
    offset, end = 0, len(data) - records.PEEK_BYTES
    next_entry_id = wanted.next_entry_id
    while offset <= end:
        prefix, size, lsn, count, ledger_id, first = records.peek_adds(data, offset)
        if (
            prefix != records.ADDS_PREFIX
            or lsn != base_lsn + offset
            or ledger_id != wanted.ledger_id
        ):
            return 0
        if first + count > next_entry_id:
            return offset if first <= next_entry_id else 0
        behind = offset + RECORD_HEADER_BYTES + size
        if behind > len(data):
            return offset
        offset = behind
    return offset


def _cut(batch: BatchView, first: int, last: int) -> Buffer:
    header = batch.header
    return batch.cut(
        EntryId(max(first, header.first_entry_id)), EntryId(min(last, header.last_entry_id))
    )


async def list_ranges(
    index: Index, state: ReplicaState, first: int, limit: int
) -> EntryRangesResult:
    """List the stored ranges from an entry on; adjacent ranges are merged."""
    ranges: list[tuple[int, int]] = []
    while first <= state.highest:
        lookup = await index.look_up(
            state.ledger_id, first, state.highest, state.indexed_highest, LOOKUP_RUNS
        )
        for last, run_first, _, _ in lookup.runs:
            if run_first > lookup.known_to:
                break
            if ranges and ranges[-1][1] + 1 == run_first:
                ranges[-1] = (ranges[-1][0], last)
            elif len(ranges) < limit:
                ranges.append((run_first, last))
            else:
                return EntryRangesResult(Status.OK, tuple(ranges), complete=False)
        if lookup.is_unproven:
            return EntryRangesResult(Status.UNKNOWN, tuple(ranges), complete=False)
        first = lookup.known_to + 1
    return EntryRangesResult(Status.OK, tuple(ranges), complete=True)
