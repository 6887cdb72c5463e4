"""Carries out cleaning: deletes the runs of deleted ledgers, drops dead segments, rewrites
scattered ones sorted by ledger.

Leaves the choice to `bookie.cleaning`.

Invariants, in this order: the new segment is written and synced, its name is synced, each run moves
only if the index still names the old place, that commit is synced, reads of the old file have
ended, the old file goes. A segment whose runs cannot all be accounted for, or be read, is kept.
Source: storage design, "Cleaning"; reliability D20.
"""

import asyncio
import random
from dataclasses import dataclass, field

from bookie import cleaning, listing, records, replay
from bookie.config import StorageConfig
from bookie.disk import Buffer, Disk, File
from bookie.errors import DamagedRecordError, DiskFailedError, DiskFullError
from bookie.index import Index
from bookie.index_pages import Move
from bookie.index_runs import Run
from bookie.ledgers import Ledgers
from bookie.records import ADDS, RECORD_HEADER_BYTES, Record, RecordKind
from bookie.segments import DIRECTORY, UNFINISHED_SUFFIX, Segment, Segments
from bookie.wire.batch import parse_header

PIECE_BYTES = 1024 * 1024


@dataclass(slots=True)
class _Rewrite:
    """A new segment while it is written."""

    segment: Segment
    file: File
    buffers: list[Buffer] = field(default_factory=list)
    footer: bytearray = field(default_factory=bytearray)
    moves: list[Move] = field(default_factory=list)
    written: int = 0
    is_open_ended: bool = False
    """Whether the next run may join the last move: its records end where its entries end."""


class Cleaner:
    """Cleans one storage."""

    def __init__(
        self,
        disk: Disk,
        config: StorageConfig,
        ledgers: Ledgers,
        index: Index,
        segments: Segments,
        rng: random.Random,
    ) -> None:
        self.cleaned_count = 0
        self.freed_bytes = 0
        self._disk = disk
        self._config = config
        self._ledgers = ledgers
        self._index = index
        self._segments = segments
        self._rng = rng
        self._removed: list[int] = []

    def take_removed(self) -> list[int]:
        """Return the segments removed since the last call, for the index to forget."""
        removed, self._removed = self._removed, []
        return removed

    async def clean(self, *, is_emergency: bool) -> int:
        """Do one pass; return the bytes freed. Raises DiskFullError."""
        before = self.freed_bytes
        try:
            await self._delete_ledgers()
        except DiskFullError:
            if not is_emergency:
                raise  # in an emergency, what is dead already can go without the index's help
        mark_segment = records.segment_of(self._index.meta.mark_lsn)
        below = [s for n, s in sorted(self._segments.by_number.items()) if n < mark_segment]
        if not is_emergency:
            for segment in below:
                await self._measure(segment)
        plan = cleaning.plan_cleaning(below, mark_segment, self._config, is_emergency=is_emergency)
        for number in plan.dead:
            await self._clean_segments([number], may_write=not is_emergency)
        if plan.rewrite:
            await self._clean_segments(list(plan.rewrite), may_write=True)
        return self.freed_bytes - before

    async def _delete_ledgers(self) -> None:
        for ledger_id in [number for number, has_runs in self._ledgers.deleted.items() if has_runs]:
            if self._index.is_moving(ledger_id):
                continue  # a checkpoint stores runs of it: the next pass finds all of them
            is_done = False
            while not is_done:
                freed, is_done = await self._index.delete_some(ledger_id)
                self._segments.free(freed)
            self._ledgers.deleted[ledger_id] = False
            self._ledgers.unsaved_deletions[ledger_id] = None

    async def _measure(self, segment: Segment) -> None:
        if segment.mean_run_bytes is None and not segment.is_cleaned and not segment.is_damaged:
            runs = await listing.list_records(self._segments, segment)
            segment.mean_run_bytes = 0 if runs is None else cleaning.mean_run_bytes(runs)

    async def _clean_segments(self, numbers: list[int], *, may_write: bool) -> None:
        """Move what the index names in some segments to a new one, and remove them."""
        named: dict[tuple[int, int], Run] = {}
        cleared: list[int] = []
        for number in numbers:
            found = await self._named_runs(self._segments.by_number[number])
            if found is None or (found and not may_write):
                continue
            named.update({(ledger_id, run[1]): run for ledger_id, run in found})
            cleared.append(number)
        unmoved: dict[int, None] = {}
        if named:
            unmoved = await self._rewrite(
                [(ledger_id, named[ledger_id, first]) for ledger_id, first in sorted(named)]
            )
        gone = [
            number
            for number in cleared
            if number not in unmoved and not self._segments.by_number[number].is_damaged
        ]
        for number in gone:
            self.freed_bytes += self._segments.by_number[number].size
            self.cleaned_count += 1
            await self._segments.remove(number)
            self._removed.append(number)
        if gone:
            await self._disk.sync_directory(DIRECTORY)

    async def _named_runs(self, segment: Segment) -> list[tuple[int, Run]] | None:
        """Return the runs (ledger id, run) that the index has in a segment; None when it cannot
        account for them.
        """
        listed = await listing.list_records(self._segments, segment)
        if listed is None:
            return None
        named: list[tuple[int, Run]] = []
        for ledger_id, first, last in cleaning.spans(listed):
            if ledger_id in self._ledgers.deleted:
                continue
            runs = await self._index.stored_runs(ledger_id, first, last)
            if runs is None or not runs or runs[-1][0] < last:
                return None  # entries of this segment are missing from the index
            in_memory = self._index.in_memory(ledger_id, first, last)
            if any(records.segment_of(run[2]) == segment.number for run in in_memory):
                return None  # a rebuilt ledger's runs are not stored yet
            named += [(ledger_id, r) for r in runs if records.segment_of(r[2]) == segment.number]
        return named

    async def _rewrite(self, runs: list[tuple[int, Run]]) -> dict[int, None]:
        """Write runs, sorted by ledger and entry, into a new segment, and let the index name it;
        return the old segments that it may still name.
        """
        segment = Segment(self._segments.take_number(), is_cleaned=True, size=0)
        unfinished = segment.name + UNFINISHED_SUFFIX
        rewrite = _Rewrite(segment, await self._disk.create(unfinished))
        try:
            self._put(rewrite, RecordKind.HEAD, records.encode_head(0, records.HEAD_IS_CLEANED))
            for ledger_id, run in runs:
                found = await self._read_run(run)
                if found is not None:
                    self._put_run(rewrite, ledger_id, run, found)
                if segment.size - rewrite.written >= PIECE_BYTES:
                    await self._flush(rewrite)
            self._put(
                rewrite, RecordKind.FOOTER, records.encode_footer(rewrite.footer, segment.size)
            )
            await self._flush(rewrite)
        except DiskFullError:
            await rewrite.file.close()
            await self._disk.unlink(unfinished)
            raise
        await self._disk.rename(unfinished, segment.name)
        await self._disk.sync_directory(DIRECTORY)
        rewrite.file.drop_cached(0, segment.size)
        self._segments.adopt(segment, rewrite.file)
        limit = self._config.transaction_runs_max
        unmoved: dict[int, None] = {}
        for start in range(0, len(rewrite.moves), limit):
            unmoved |= await self._index.move(rewrite.moves[start : start + limit])
        segment.live_bytes = sum(move.new[3] for move in rewrite.moves)
        return unmoved

    async def _read_run(self, run: Run) -> list[Record] | None:
        """Return the records of a run that hold some of its entries; None, with its segment kept,
        when one is damaged.
        """
        last, first, location, size = run
        number = records.segment_of(location)
        try:
            data = await self._segments.read(number, records.offset_of(location), size)
        except (DamagedRecordError, DiskFailedError):
            self._segments.by_number[number].is_damaged = True
            return None
        found, taken, _ = replay.scan(memoryview(data), location)
        if taken != size:
            self._segments.by_number[number].is_damaged = True
            return None
        headers = [parse_header(record.body) for record in found]
        return [
            record
            for record, header in zip(found, headers, strict=True)
            if header.last_entry_id >= first and header.first_entry_id <= last
        ]

    def _put_run(self, rewrite: _Rewrite, ledger_id: int, run: Run, found: list[Record]) -> None:
        """Queue a run's records, joined to the run before where entries and bytes both touch."""
        location = records.lsn_of(rewrite.segment.number, rewrite.segment.size)
        for record in found:
            self._put(rewrite, ADDS, record.body)
        size = records.lsn_of(rewrite.segment.number, rewrite.segment.size) - location
        starts_whole = parse_header(found[0].body).first_entry_id == run[1]
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
            rewrite.moves[-1] = Move(ledger_id, (*move.old, run), joined)
        else:
            rewrite.moves.append(Move(ledger_id, (run,), (run[0], run[1], location, size)))
        rewrite.is_open_ended = parse_header(found[-1].body).last_entry_id == run[0]

    def _put(self, rewrite: _Rewrite, kind: int, body: Buffer) -> None:
        segment = rewrite.segment
        lsn = records.lsn_of(segment.number, segment.size)
        size = RECORD_HEADER_BYTES + len(body)
        if kind == ADDS:
            rewrite.footer += records.footer_run(body, segment.size, size)
        rewrite.buffers += (records.encode_header(kind, body, lsn, lsn), body)
        segment.size += size

    async def _flush(self, rewrite: _Rewrite) -> None:
        """Write what is queued, slowly."""
        buffers, rewrite.buffers = rewrite.buffers, []
        size = rewrite.segment.size - rewrite.written
        await rewrite.file.commit(rewrite.written, buffers)
        rewrite.written = rewrite.segment.size
        pace = 0.9 + 0.2 * self._rng.random()  # bookies that began together drift apart
        await asyncio.sleep(pace * size / self._config.clean_bytes_per_s)
