"""Cleaning of a storage: deletes the runs of deleted ledgers, drops dead segments, and rewrites
scattered segments sorted by ledger.

Leaves the choice of segments to `bookie.storage.cleaning`.

Invariants, in this order: the new segment is written and synced; its name is synced; each run moves
only if the index still names the old place; that commit is synced; the old file is removed, and is
closed after its reads have ended. A segment whose runs cannot all be found or read is kept; one
with damage goes once every record that is left in it is accounted for, and none is named. A rewrite
begins only if it fits into the space of its pass, index pages included. The event loop runs other
callbacks between two slices of a large collection.
Source: storage design, "Cleaning"; reliability design, D20.
"""

import asyncio
import heapq
import random
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeVar

from bookie.config import StorageConfig
from bookie.errors import DamagedRecordError, DiskFailedError, DiskFullError
from bookie.files.disk import Buffer, Disk, File
from bookie.index.index import Index
from bookie.index.index_runs import Run
from bookie.index.stored_runs import RunMove
from bookie.log import records, replay
from bookie.log.records import ADDS, RECORD_HEADER_BYTES, Record, RecordKind
from bookie.log.replay import ListedRuns
from bookie.log.segments import DIRECTORY, UNFINISHED_SUFFIX, Segment, Segments
from bookie.storage import cleaning
from bookie.storage.cleaning import CleaningPlan, CleaningRoom
from bookie.storage.cold_ledgers import find_gone
from bookie.storage.ledgers import RUNS_LEFT_MAX, Ledgers
from bookie.wire.batch import parse_header

PIECE_BYTES = 1024 * 1024
PART_RECORDS: Final = 65_536
"""Approximate number of records that are looked up and rewritten at a time. Each takes up to a
kilobyte of memory during that. A segment with more records is rewritten as several segments.
"""
FULL_DISK_MOVES_MAX: Final = 64
"""Maximum number of runs moved, and of ledgers whose runs are deleted, in one index transaction on
a full disk, so that it copies few of the index's pages.
"""
SLICE_ITEMS: Final = 4_096
Item = TypeVar("Item")


Comparable = TypeVar("Comparable", bound=tuple[Any, ...])


@dataclass(slots=True)
class _Rewrite:
    """New segment that is being written."""

    segment: Segment
    file: File
    buffers: list[Buffer] = field(default_factory=list)
    footer: bytearray = field(default_factory=bytearray)
    moves: list[RunMove] = field(default_factory=list)
    written: int = 0
    record_count: int = 0
    is_open_ended: bool = False
    """Whether the next run may join the last move: its last record ends with its last entry."""


@dataclass(eq=False, repr=False)
class Cleaner:
    """Cleaner of one storage."""

    _disk: Disk
    _config: StorageConfig
    _ledgers: Ledgers
    _index: Index
    _segments: Segments
    _rng: random.Random
    cleaned_count: int = field(default=0, init=False)
    freed_bytes: int = field(default=0, init=False)
    written_bytes: int = field(default=0, init=False)
    _removed: list[int] = field(default_factory=list, init=False)

    def take_removed(self) -> list[int]:
        """Return the segments removed since the last call, for the removal from the index."""
        removed, self._removed = self._removed, []
        return removed

    def put_back_removed(self, removed: list[int]) -> None:
        """Return these segments again from `take_removed`, because the index could not remove
        them.
        """
        self._removed += removed

    def plan(self, room: CleaningRoom) -> CleaningPlan:
        """Return the plan of the next pass, from the known sizes of the segments."""
        mark_segment = records.segment_of(self._index.meta.mark_lsn)
        segments = self._segments.by_number.values()
        return cleaning.plan_cleaning(segments, mark_segment, self._config, room)

    def retry_kept(self) -> None:
        """Make the next pass retry the segments that earlier passes had to keep, without those with
        damage that were not accounted for: reading their bad bytes again may take long.
        """
        for segment in self._segments.by_number.values():
            segment.is_kept = segment.is_kept and segment.is_damaged

    async def count_next(self) -> bool:
        """Compare the live bytes of the next segment with the index and correct them. Return
        whether they have decreased. Raises DiskFullError.
        """
        mark_segment = records.segment_of(self._index.meta.mark_lsn)
        below = [s for n, s in sorted(self._segments.by_number.items()) if n < mark_segment]
        segment = next((lower for lower in below if not lower.is_counted), None)
        if segment is None:
            for lower in below:
                lower.is_counted = False
            return False
        segment.is_counted = True
        live_bytes = None if segment.is_damaged else await self.live_bytes(segment)
        if live_bytes is None:
            return False
        change = live_bytes - segment.live_bytes
        if abs(change) <= segment.size * cleaning.GAIN_SHARE_MIN:
            return False
        await self._index.correct_live_bytes(segment.number, change)
        segment.live_bytes += change
        return change < 0

    async def live_bytes(self, segment: Segment) -> int | None:
        """Return how many bytes of a segment the index names; None when it cannot account for all
        records.
        """
        listed = await replay.list_records(self._segments, segment)
        if listed is None:
            return None
        total = 0
        for part in await listed.parts(PART_RECORDS):
            runs = await self._named(segment, part)
            if runs is None:
                return None
            total += await live_bytes_of(runs)
        return total

    async def clean(self, room: CleaningRoom) -> int:
        """Run one pass; return the bytes freed. Raises DiskFullError."""
        before = self.freed_bytes
        try:
            await self._delete_ledgers(is_full=room.is_full)
        except DiskFullError:
            if not room.is_full:
                raise  # on a full disk, dead segments can be removed without an update of the index
        mark_segment = records.segment_of(self._index.meta.mark_lsn)
        for segment in [s for n, s in sorted(self._segments.by_number.items()) if n < mark_segment]:
            await self._measure(segment, is_full=room.is_full)
        plan = self.plan(room)
        for number in plan.dead:
            await self._clean_segments([number], room)
        if plan.rewrite:
            await self._clean_segments(list(plan.rewrite), room)
        return self.freed_bytes - before

    async def _delete_ledgers(self, *, is_full: bool) -> None:
        ledgers = self._ledgers
        if ledgers.has_more_runs_left and not ledgers.runs_left:
            await self._list_runs_left()
        # While a checkpoint is storing runs of a ledger, they are left: the next pass finds all.
        ready = [run for run in ledgers.runs_left if not self._index.is_moving(run)]
        size = self._moves_max(is_full=is_full)
        for start in range(0, len(ready), size):
            part = ready[start : start + size]
            await self._index.delete_all(part, self._segments.free)
            for ledger_id in part:
                ledgers.note_runs_gone(ledger_id)

    async def _list_runs_left(self) -> None:
        """List deleted ledgers with runs in the index, page by page: look-ups run between two."""
        ledgers, room = self._ledgers, RUNS_LEFT_MAX
        after: int | None = -1
        while after is not None and room:
            ids, after = await self._index.list_runs_left(after, room)
            # The index learns at the next checkpoint which runs are gone.
            left = [id_ for id_ in ids if ledgers.tombstones.get(id_) is not False]
            ledgers.runs_left.update(dict.fromkeys(left))
            room -= len(left)
        ledgers.has_more_runs_left = after is not None

    async def _measure(self, segment: Segment, *, is_full: bool) -> None:
        if segment.is_damaged:
            return
        if segment.record_count is None:
            segment.record_count = await replay.count_records(self._segments, segment)
        if segment.mean_run_bytes is None and not segment.is_cleaned and not is_full:
            runs = await replay.list_records(self._segments, segment)
            segment.mean_run_bytes = 0 if runs is None else await runs.mean_bytes()

    async def _clean_segments(self, numbers: list[int], room: CleaningRoom) -> None:
        """Move the runs that the index names in some segments to a new segment, as far as they fit,
        and remove the old segments. The next pass cleans the others.
        """
        named: dict[tuple[int, int], Run] = {}
        cleared: list[int] = []
        needed_bytes = self._index_growth(room)
        for number in numbers:
            segment = self._segments.by_number[number]
            listed = await replay.list_records(self._segments, segment, skips_damage=True)
            if listed is not None and len(listed) > PART_RECORDS:
                if not cleared:
                    await self._clean_in_parts(segment, listed, room)
                    return
                break
            runs = None if listed is None else await self._named(segment, listed)
            if listed is None or runs is None:
                segment.is_kept = True
                continue
            if cleared and len(named) + len(runs) > PART_RECORDS:
                break
            segment.live_bytes = await live_bytes_of(runs)
            needed_bytes += segment.live_bytes + _footer_bytes(listed)
            if runs and needed_bytes > room.free_bytes:
                segment.is_kept = not cleared  # the first one: no segment of this plan fits
                break
            async for part in in_slices(runs):
                named.update({(ledger_id, run[1]): run for ledger_id, run in part})
            cleared.append(number)
        unmoved: dict[int, None] = {}
        if named:
            unmoved = await self._rewrite(named, room)
        await self._remove(cleared, unmoved)

    async def _clean_in_parts(
        self, segment: Segment, listed: ListedRuns, room: CleaningRoom
    ) -> None:
        """Move the runs that the index names in a segment with many records to several new
        segments. Remove the old segment if all runs were moved.
        """
        free_bytes = room.free_bytes - self._index_growth(room)
        unmoved: dict[int, None] = {}
        is_unaccounted = False
        for part in await listed.parts(PART_RECORDS):
            runs = await self._named(segment, part)
            if runs is None:
                unmoved[segment.number], is_unaccounted = None, True
                continue
            if not runs:
                continue
            live_bytes = await live_bytes_of(runs)
            free_bytes -= live_bytes + _footer_bytes(part)
            if free_bytes < 0:
                unmoved[segment.number] = None
                break
            named = {(ledger_id, run[1]): run for ledger_id, run in runs}
            unmoved |= await self._rewrite(named, room)
            segment.live_bytes -= live_bytes
        await self._remove([segment.number], unmoved)
        segment.is_kept |= is_unaccounted

    def _index_growth(self, room: CleaningRoom) -> int:
        """Return how many bytes of the available space the index may need for moves."""
        growth_bytes = self._index.growth_bytes(self._moves_max(is_full=room.is_full))
        if room.index_bytes is None:
            return growth_bytes
        # Without room for the index no run can be moved; dead segments can still be removed.
        return room.free_bytes if growth_bytes > room.index_bytes else 0

    async def _remove(self, cleared: list[int], unmoved: dict[int, None]) -> None:
        """Remove the segments from which every run was moved; keep the others."""
        gone = [number for number in cleared if number not in unmoved]
        for number in cleared:
            segment = self._segments.by_number[number]
            # One with damage waits until nothing in it is live, and is tried again then.
            segment.is_kept = number not in gone and not segment.is_damaged
        for number in gone:
            self.freed_bytes += self._segments.by_number[number].size
            self.cleaned_count += 1
            await self._segments.remove(number)
            self._removed.append(number)
        if gone:
            await self._disk.sync_directory(DIRECTORY)

    async def _named(self, segment: Segment, listed: ListedRuns) -> list[tuple[int, Run]] | None:
        return await find_named(self._ledgers, self._index, segment.number, listed)

    def _moves_max(self, *, is_full: bool) -> int:
        limit = self._config.transaction_runs_max
        return min(limit, FULL_DISK_MOVES_MAX) if is_full else limit

    async def _rewrite(
        self, named: dict[tuple[int, int], Run], room: CleaningRoom
    ) -> dict[int, None]:
        """Write runs, keyed and sorted by ledger and first entry id, into a new segment, and update
        their places in the index. Return the old segments that the index may still name.
        """
        segment = Segment(self._segments.take_number(), is_cleaned=True, size=0)
        unfinished = segment.name + UNFINISHED_SUFFIX
        rewrite = _Rewrite(segment, await self._disk.create(unfinished, background=True))
        unmoved: dict[int, None] = {}
        try:
            self._put(rewrite, RecordKind.HEAD, records.encode_head(0, records.HEAD_IS_CLEANED))
            async for keys in in_order(named):
                runs = {named[key]: key[0] for key in keys}
                for group in cleaning.group_runs(runs):
                    readable = await self._read_runs(group)
                    for run in group:
                        if run in readable:
                            self._put_run(rewrite, runs[run], run, readable[run])
                        else:
                            unmoved[records.segment_of(run[2])] = None
                        if segment.size - rewrite.written >= PIECE_BYTES:
                            await self._flush(rewrite, room.bytes_per_s)
            records.end_footer(rewrite.footer, segment.size)
            self._put(rewrite, RecordKind.FOOTER, rewrite.footer)
            await self._flush(rewrite, room.bytes_per_s)
        except DiskFullError:
            await rewrite.file.close()
            await self._disk.unlink(unfinished)
            raise
        await self._disk.rename(unfinished, segment.name)
        await self._disk.sync_directory(DIRECTORY)
        rewrite.file.drop_cached(0, segment.size)
        self._segments.adopt(segment, rewrite.file)
        segment.record_count = rewrite.record_count
        limit = self._moves_max(is_full=room.is_full)
        for start in range(0, len(rewrite.moves), limit):
            moves = rewrite.moves[start : start + limit]
            segment.live_bytes += sum(move.new[3] for move in moves)
            unmoved |= await self._index.move(moves)
        return unmoved

    async def _read_runs(self, group: list[Run]) -> dict[Run, list[Record]]:
        """Return the records that hold entries of each run. If bytes cannot be read or a record is
        damaged, mark the segment and leave its run out.
        """
        readable: dict[Run, list[Record]] = {}
        for piece in cleaning.pieces_of(group):
            number, offset = records.segment_of(piece.location), records.offset_of(piece.location)
            try:
                data = memoryview(await self._segments.read_or_wait(number, offset, piece.size))
            except (DamagedRecordError, DiskFailedError):
                self._segments.by_number[number].is_damaged = True
                continue
            for run in piece.runs:
                start = run[2] - piece.location
                whole = _records_of(run, data[start : start + run[3]])
                if whole is None:
                    self._segments.by_number[number].is_damaged = True
                else:
                    readable[run] = whole
        return readable

    def _put_run(self, rewrite: _Rewrite, ledger_id: int, run: Run, whole: list[Record]) -> None:
        """Queue a run's records, and join it to the run before if both entries and bytes are
        adjacent.
        """
        location = records.lsn_of(rewrite.segment.number, rewrite.segment.size)
        for record in whole:
            self._put(rewrite, ADDS, record.body)
        size = records.lsn_of(rewrite.segment.number, rewrite.segment.size) - location
        starts_whole = parse_header(whole[0].body).first_entry_id == run[1]
        move = rewrite.moves[-1] if rewrite.moves else None
        if (
            move is not None
            and rewrite.is_open_ended
            and starts_whole
            and move.ledger_id == ledger_id
            and move.new[0] + 1 == run[1]
            and move.new[3] + size <= self._config.run_bytes_max
        ):
            joined = (run[0], move.new[1], move.new[2], move.new[3] + size)
            rewrite.moves[-1] = RunMove(ledger_id, (*move.old, run), joined)
        else:
            rewrite.moves.append(RunMove(ledger_id, (run,), (run[0], run[1], location, size)))
        rewrite.is_open_ended = parse_header(whole[-1].body).last_entry_id == run[0]

    def _put(self, rewrite: _Rewrite, kind: int, body: Buffer) -> None:
        segment = rewrite.segment
        lsn = records.lsn_of(segment.number, segment.size)
        size = RECORD_HEADER_BYTES + len(body)
        if kind == ADDS:
            rewrite.footer += records.footer_run(body, segment.size, size)
            rewrite.record_count += 1
        rewrite.buffers += (records.encode_header(kind, body, lsn, lsn), body)
        segment.size += size

    async def _flush(self, rewrite: _Rewrite, bytes_per_s: float) -> None:
        """Write the queued records, then wait to keep the pace."""
        buffers, rewrite.buffers = rewrite.buffers, []
        size = rewrite.segment.size - rewrite.written
        await rewrite.file.commit(rewrite.written, buffers)
        rewrite.written = rewrite.segment.size
        self.written_bytes += size
        pace = 0.9 + 0.2 * self._rng.random()  # spreads bookies started together
        await asyncio.sleep(pace * size / bytes_per_s)


def _records_of(run: Run, data: memoryview) -> list[Record] | None:
    """Return the records that hold entries of a run; None if one is damaged or missing."""
    last, first, location, size = run
    parsed, taken, _ = replay.scan(data, location)
    if taken != size:
        return None
    headers = [parse_header(record.body) for record in parsed]
    return [
        record
        for record, header in zip(parsed, headers, strict=True)
        if header.last_entry_id >= first and header.first_entry_id <= last
    ]


def _footer_bytes(listed: ListedRuns) -> int:
    """Return the bytes that a new segment needs besides its records."""
    return len(listed) * records.FOOTER_RUN_BYTES + cleaning.SEGMENT_OVERHEAD_BYTES


async def find_named(
    ledgers: Ledgers, index: Index, number: int, listed: ListedRuns
) -> list[tuple[int, Run]] | None:
    """Return the runs (ledger id, run) of some records of a segment that the index names; None when
    it cannot account for all records.
    """
    named: list[tuple[int, Run]] = []
    spans = await listed.spans()
    for part in cut(spans.items()):
        ledger_ids = [ledger_id for ledger_id, _ in part]
        deleted, released = await find_gone(ledgers, index, ledger_ids)
        for ledger_id, (first, last) in part:
            if ledger_id in deleted:
                continue
            # Before the store is read: a checkpoint that ends during the read moves runs out of
            # memory.
            in_memory = index.in_memory(ledger_id, first, last)
            if any(records.segment_of(run[2]) == number for run in in_memory):
                return None  # a rebuilt ledger's runs are not stored yet
            runs = await index.stored_runs(ledger_id, first, last)
            if runs is None or ((not runs or runs[-1][0] < last) and ledger_id not in released):
                return None  # entries of this segment are missing from the index
            named += [(ledger_id, r) for r in runs if records.segment_of(r[2]) == number]
    return named


async def live_bytes_of(runs: Iterable[tuple[int, Run]]) -> int:
    """Return how many bytes of a segment some runs (ledger id, run) take. Bytes that several runs
    share count once.
    """
    total = end = 0
    async for part in in_order((run[2], run[3]) for _, run in runs):
        for start, size in part:
            total += max(0, start + size - max(start, end))
            end = max(end, start + size)
    return total


def cut(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield items in slices, for a caller that awaits in each slice. The collection must not change
    during the iteration.
    """
    left = iter(items)
    while part := list(islice(left, SLICE_ITEMS)):
        yield part


async def in_slices(items: Iterable[Item]) -> AsyncIterator[list[Item]]:
    """Yield items in slices. The collection must not change during the iteration."""
    for part in cut(items):
        yield part
        await asyncio.sleep(0)


async def in_order(items: Iterable[Comparable]) -> AsyncIterator[list[Comparable]]:
    """Yield items in slices, in ascending order. Each slice is sorted separately, then all are
    merged.
    """
    parts: list[list[Comparable]] = []
    async for part in in_slices(items):
        part.sort()
        parts.append(part)
    async for part in in_slices(heapq.merge(*parts)):
        yield part
