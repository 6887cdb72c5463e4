"""A new index for a stopped bookie, built from its old index and every segment.

Leaves the stored forms to `bookie.index.index_pages`.

The new index guarantees what the old index guaranteed, and no more:

- Ledger states (fences, keys, tombstones) and all other values but runs are copied as they are,
  with their own CRCs. The log no longer holds most of them.
- Runs with a valid CRC are copied. Valid records of live ledgers below the checkpoint's mark that
  no run names are added.
- A ledger of which the old index could not prove all runs is put into limbo and fenced, as the
  bookie itself does (rule 2.4): the bookie answers UNKNOWN for its entries that are not found.
- The checkpoint's mark stays: the next start replays the log from there as it would have.

If the old index cannot account for its states, a tombstone or a fence may be lost. Then no index is
built without consent; with consent, the remaining states are kept (none of a file that lacks
pages), and the next start indexes every segment in limbo.

Format: the old index stays as `index/data.mdb.old-N`, N from 1, unless it is to be discarded.

Invariants: the old index is only read; memory is bounded by one page and one segment's list; at
every moment `index/data.mdb` is the complete old index or the complete new one, also after a loss
of power.
Source: protocol rules 2.4, 10.2; storage design, "Index".
"""

import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Final

from bookie.errors import BookieError, IndexFileError
from bookie.files.disk import Disk, OrderedStore, StoreTransaction
from bookie.files.index_lmdb import DATA_NAME
from bookie.index import (
    index_pages,
    index_runs,
    replica_state,
    stored_runs,
    stored_states,
)
from bookie.index.index_pages import FLAG_FENCES_LOST, FLAG_LIMBO, INDEX_VERSION, CheckpointMeta
from bookie.index.index_runs import Run
from bookie.index.replica_state import ReplicaState
from bookie.index.stored_runs import StoredRun, highest_run, scan_runs
from bookie.index.stored_states import StatesCheck, check_some
from bookie.log import records
from bookie.log.records import FooterRun
from bookie.log.segments import Segment, StartFiles
from bookie.storage.opening import INDEX_NAME
from metadata.ids import NO_ENTRY, LedgerId
from quire.offline.stopped import MAP_BYTES, list_segments, read_segment

NEW_NAME: Final = "index/rebuild.new"
PAIRS_PER_PAGE: Final = 2_000
RECORDS_PER_PAGE: Final = 500
_REBUILT_PREFIXES: Final = (b"r", b"g")
"""Prefixes of values that are built again: runs, and the live bytes that follow from them. Every
other value is copied."""
_META_KEY: Final = b"m"
_ALL_IN_LIMBO: Final = CheckpointMeta(
    INDEX_VERSION, FLAG_LIMBO | FLAG_FENCES_LOST, mark_lsn=0, state_count=0, state_xor=0
)
RUN_ID_MAX: Final = 2**64 - 1
"""No run ends after this entry id."""


class IndexUnprovenError(BookieError):
    """The old index cannot account for its ledger states."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the index cannot account for its ledger states ({why}): a fence or the trace of a "
            "deleted ledger may be lost. A new index would put the entire bookie into limbo. "
            "Nothing was changed"
        )


@dataclass(slots=True)
class RebuildReport:
    """Results of a rebuild."""

    ledger_count: int = 0
    deleted_count: int = 0
    damaged_states: int = 0
    """Number of states that fail their CRC and were left out."""
    runs_copied: int = 0
    runs_added: int = 0
    """Number of added runs, for records that no valid run of the old index named."""
    damaged_runs: int = 0
    segment_count: int = 0
    limbo_ledgers: int = 0
    """Number of ledgers put into limbo because the old index could not prove its runs of them."""
    is_limbo: bool = False
    """Whether the entire bookie is in limbo: its states could not be accounted for, or it was in
    limbo before."""
    mark_lsn: int = 0


async def rebuild_index(
    disk: Disk, *, accepts_limbo: bool, on_read: Callable[[int], None]
) -> RebuildReport:
    """Build a new index in `NEW_NAME`, which must not exist. The old index must exist, and the
    directory must be locked. Raises IndexUnprovenError, DiskFailedError, DiskFullError; the old
    index does not change.
    """
    async with AsyncExitStack() as opened:
        old: OrderedStore | None = None
        try:
            old = await disk.open_index(INDEX_NAME, MAP_BYTES)
            opened.push_async_callback(old.close)
        except IndexFileError as error:
            if not accepts_limbo:
                raise IndexUnprovenError(error.why) from error
        new = await disk.open_index(NEW_NAME, MAP_BYTES)
        opened.push_async_callback(new.close)
        if old is not None:
            return await _Rebuild(disk, old, new, on_read).run(accepts_limbo=accepts_limbo)
        await new.update(lambda t: index_pages.write_meta(t, _ALL_IN_LIMBO))
        return RebuildReport(is_limbo=True)


class _Chain:
    """Check that the runs of one ledger name each other without a gap, up to the highest entry."""

    __slots__ = ("_highest", "_is_whole", "_last")

    def __init__(self, highest: int) -> None:
        self._highest = highest
        self._is_whole = True
        self._last = int(NO_ENTRY)

    def note(self, stored: StoredRun) -> None:
        """Add the next run."""
        if stored.run is None or stored.previous != self._last:
            self._is_whole = False
        self._last = stored.last

    @property
    def is_proven(self) -> bool:
        """Return whether all runs up to the highest entry were found undamaged."""
        return self._is_whole and self._last == self._highest


class _Rebuild:
    """One rebuild of an index: reads the old store, writes a new one."""

    def __init__(
        self, disk: Disk, old: OrderedStore, new: OrderedStore, on_read: Callable[[int], None]
    ) -> None:
        self._disk = disk
        self._files = StartFiles(disk)
        self._old = old
        self._new = new
        self._on_read = on_read
        self._report = RebuildReport()
        self._unproven: dict[int, None] = {}
        self._grown: dict[int, None] = {}
        """Ledgers with records that the old index did not name."""

    async def run(self, *, accepts_limbo: bool) -> RebuildReport:
        report = self._report
        meta = await self._old.view(index_pages.read_meta)
        why = await self._copy_values(meta)
        if why:
            if not accepts_limbo:
                raise IndexUnprovenError(why)
            meta = _ALL_IN_LIMBO
        else:
            assert meta is not None
            await self._keep_segment_numbers()
            await self._copy_runs()
            await self._add_from_segments(meta.mark_lsn)
            await self._settle_states()
        totals = await _check_states(self._new)
        stored = replace(meta, state_count=totals.count, state_xor=totals.xor)
        await self._new.update(lambda t: index_pages.write_meta(t, stored))
        report.is_limbo, report.mark_lsn = bool(meta.flags & FLAG_LIMBO), meta.mark_lsn
        return report

    async def _copy_values(self, meta: CheckpointMeta | None) -> str:
        """Copy everything but the mark, runs and live bytes; return the reason why the states
        cannot be accounted for, or an empty string.
        """
        report, check = self._report, await _check_states(self._old)
        report.ledger_count, report.deleted_count = check.held_count, check.deleted_count
        report.damaged_states = len(check.damaged)
        async for pairs in self._pages(self._old):
            await self._new.update(partial(_put_sound, pairs))
        if check.is_horizon_damaged:
            await self._new.update(stored_states.remove_horizon)
            return "the horizon of deleted ledgers is damaged"
        if meta is None:
            return "the checkpoint's mark is lost or damaged"
        if check.damaged:
            return f"{len(check.damaged)} of them are damaged"
        if (check.count, check.xor) != (meta.state_count, meta.state_xor):
            return f"it names {meta.state_count} states, but there are {check.count}"
        return ""

    async def _keep_segment_numbers(self) -> None:
        """Name every segment that the old index names, so that no number is used again for other
        bytes.
        """
        after = -1
        scan = partial(stored_runs.scan_segments, kind=stored_runs.LIVE_BYTES)
        while page := await self._old.view(partial(scan, after=after)):
            after = page[-1][0]
            numbers = [number for number, live_bytes in page if live_bytes is not None]
            await self._new.update(partial(stored_runs.name_segments, numbers=numbers))

    async def _copy_runs(self) -> None:
        """Copy the valid runs of the ledgers that the bookie holds, and find the ledgers with
        missing runs.
        """
        async for pairs in self._pages(self._old, b"s"):
            chains: dict[int, _Chain] = {}
            for key, value in pairs:
                state = replica_state.decode(_ledger_of(key), value)
                if isinstance(state, ReplicaState):
                    chains[state.ledger_id] = _Chain(state.highest)
            first, last = _ledger_of(pairs[0][0]), _ledger_of(pairs[-1][0])
            await self._copy_runs_between(first, last, chains)
            unproven = [ledger_id for ledger_id, chain in chains.items() if not chain.is_proven]
            self._unproven |= dict.fromkeys(unproven)

    async def _copy_runs_between(self, first: int, last: int, chains: dict[int, "_Chain"]) -> None:
        """Copy the runs of the ledgers `first` to `last` that have a chain."""
        after = (first - 1, RUN_ID_MAX) if first else (-1, -1)
        while page := await self._old.view(partial(scan_runs, after=after, limit=PAIRS_PER_PAGE)):
            copied: dict[int, list[Run]] = {}
            for stored in page:
                chain = chains.get(stored.ledger_id)
                if chain is None or stored.ledger_id > last:
                    continue
                chain.note(stored)
                if stored.run is None:
                    self._report.damaged_runs += 1
                else:
                    self._report.runs_copied += 1
                    copied.setdefault(stored.ledger_id, []).append(stored.run)
            if copied:
                await self._new.update(partial(_put_runs_of, copied))
            if page[-1].ledger_id > last or len(page) < PAIRS_PER_PAGE:
                return
            after = (page[-1].ledger_id, page[-1].last)

    async def _add_from_segments(self, mark_lsn: int) -> None:
        """Index the entries of valid records below the mark that no run names; the newest segment
        wins, as when the bookie itself rebuilds a ledger.
        """
        segments = await list_segments(self._disk)
        self._report.segment_count = len(segments.by_number)
        for number, segment in sorted(segments.by_number.items(), reverse=True):
            end = segment.size
            if not segment.is_cleaned and records.lsn_of(number, 0) >= mark_lsn:
                continue  # replayed by the next start
            if not segment.is_cleaned and number == records.segment_of(mark_lsn):
                end = records.offset_of(mark_lsn)
            await self._add_from_segment(segment, end)
            self._on_read(segment.size)

    async def _add_from_segment(self, segment: Segment, end: int) -> None:
        file = await self._files.open(segment.name)
        try:
            async for runs in read_segment(file, segment.number):
                below = [run for run in runs if run.offset < end]
                for start in range(0, len(below), RECORDS_PER_PAGE):
                    await self._add_page(segment.number, below[start : start + RECORDS_PER_PAGE])
        finally:
            await file.close()

    async def _add_page(self, number: int, page: list[FooterRun]) -> None:
        unnamed = await self._new.view(partial(_find_unnamed, page))
        if not unnamed:
            return
        added = await self._new.update(partial(_add_unnamed, number, unnamed))
        self._report.runs_added += len(added)
        self._grown |= dict.fromkeys(added)

    async def _settle_states(self) -> None:
        """Store the highest entry of each ledger that changed, and put ledgers that could not be
        proved into limbo.
        """
        changed = list({**self._unproven, **self._grown})
        self._report.limbo_ledgers = len(self._unproven)
        for start in range(0, len(changed), PAIRS_PER_PAGE):
            part = changed[start : start + PAIRS_PER_PAGE]
            await self._new.update(partial(_settle, part, self._unproven))

    @staticmethod
    async def _pages(
        store: OrderedStore, prefix: bytes = b""
    ) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        """Yield the pairs of a prefix, or all pairs that are copied as they are."""
        start: bytes | None = prefix or b"\0"
        while start is not None:
            page, start = await store.view(partial(_copied_pairs, prefix, start))
            if page:
                yield page


def _copied_pairs(
    prefix: bytes, start: bytes, transaction: StoreTransaction
) -> tuple[list[tuple[bytes, bytes]], bytes | None]:
    """Return pairs from a key on, and the key of the next call; None after the last pair."""
    pairs = transaction.scan(start, PAIRS_PER_PAGE)
    copied: list[tuple[bytes, bytes]] = []
    for key, value in pairs:
        if key.startswith(_REBUILT_PREFIXES):
            return copied, _behind_prefix(key[:1])
        if not key.startswith(prefix):
            return copied, None
        if key != _META_KEY:
            copied.append((key, value))
    return copied, pairs[-1][0] + b"\0" if len(pairs) == PAIRS_PER_PAGE else None


def _behind_prefix(prefix: bytes) -> bytes:
    return bytes([prefix[0] + 1])


def _ledger_of(key: bytes) -> LedgerId:
    return LedgerId(int.from_bytes(key[1:9], "big"))


def _put_sound(pairs: list[tuple[bytes, bytes]], transaction: StoreTransaction) -> None:
    """Store values as they are, without damaged states."""
    for key, value in pairs:
        if not key.startswith(b"s") or not replica_state.is_stored_damaged(key, value):
            transaction.put(key, value)


async def _check_states(store: OrderedStore) -> StatesCheck:
    """Count the states that the mark accounts for, as a start does."""
    check = StatesCheck()
    while not check.is_done:
        check = await store.view(partial(check_some, check=check, runs_left_max=0))
    return check


def _put_runs_of(runs_by_ledger: dict[int, list[Run]], transaction: StoreTransaction) -> None:
    for ledger_id, runs in runs_by_ledger.items():
        changes = stored_runs.put_runs(transaction, ledger_id, runs, NO_ENTRY)
        stored_runs.add_live_bytes(transaction, changes)


def _is_held(transaction: StoreTransaction, ledger_id: LedgerId) -> bool:
    value = transaction.get(index_pages.state_key(ledger_id))
    return value is not None and isinstance(replica_state.decode(ledger_id, value), ReplicaState)


def _gaps_of(transaction: StoreTransaction, run: FooterRun) -> list[tuple[int, int]]:
    """Return the entries of a record that no run names. One run nearly always names all of them, so
    other runs are looked up only if it does not.
    """
    first, last = int(run.first_entry_id), run.first_entry_id + run.count - 1
    known = stored_runs.look_up(transaction, run.ledger_id, first, last, 1)
    if index_runs.find_gaps(known.runs, first, last):
        known = stored_runs.look_up(transaction, run.ledger_id, first, last, run.count)
    return index_runs.find_gaps(known.runs, first, last)


def _find_unnamed(page: list[FooterRun], transaction: StoreTransaction) -> list[FooterRun]:
    """Return the records of held ledgers that have entries which no run names."""
    held: dict[LedgerId, bool] = {}
    unnamed: list[FooterRun] = []
    for run in page:
        if run.ledger_id not in held:
            held[run.ledger_id] = _is_held(transaction, run.ledger_id)
        if held[run.ledger_id] and _gaps_of(transaction, run):
            unnamed.append(run)
    return unnamed


def _add_unnamed(number: int, page: list[FooterRun], transaction: StoreTransaction) -> list[int]:
    """Index the gaps of some records; return the ledger of each added run."""
    added: list[int] = []
    for run in reversed(page):
        location = records.lsn_of(number, run.offset)
        for first, last in _gaps_of(transaction, run):
            _put_runs_of({run.ledger_id: [(last, first, location, run.size)]}, transaction)
            added.append(int(run.ledger_id))
    return added


def _settle(ledgers: list[int], unproven: dict[int, None], transaction: StoreTransaction) -> None:
    for ledger_id in ledgers:
        key = index_pages.state_key(ledger_id)
        value = transaction.get(key)
        state = None if value is None else replica_state.decode(LedgerId(ledger_id), value)
        assert isinstance(state, ReplicaState), "it was copied"
        if ledger_id in unproven:
            state.limbo = state.fenced = True
        highest = highest_run(transaction, ledger_id)
        transaction.put(key, state.encode(max(highest, state.highest)))


OLD_PREFIX = f"{DATA_NAME}.old-"


def remove_unfinished(data_dir: Path) -> None:
    """Remove the unfinished index of an interrupted rebuild."""
    if (data_dir / NEW_NAME).exists():
        shutil.rmtree(data_dir / NEW_NAME)


def swap_index(data_dir: Path, *, discards_old: bool) -> Path | None:
    """Replace the old index by the new one, durably; return the old one's path if it is kept."""
    index, new = data_dir / INDEX_NAME, data_dir / NEW_NAME / DATA_NAME
    current = index / DATA_NAME
    kept = None if discards_old else index / f"{OLD_PREFIX}{_next_number(index)}"
    if kept is not None:
        kept.hardlink_to(current)
        _sync_directory(index)
    new.replace(current)
    _sync_directory(index)
    shutil.rmtree(new.parent)
    return kept


def _next_number(index: Path) -> int:
    digits = [path.name.removeprefix(OLD_PREFIX) for path in index.glob(f"{OLD_PREFIX}*")]
    return 1 + max((int(digit) for digit in digits if digit.isdecimal()), default=0)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
