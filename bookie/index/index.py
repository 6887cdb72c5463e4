"""Map from entries to their places in the log. Newer runs are in memory; runs from before the last
checkpoint are in the store.

Leaves stored runs to `bookie.index.stored_runs` and the ledger states to
`bookie.storage.bookie_storage`.

Invariants: only durable records are inserted, in the order of the log; the mark of a checkpoint is
the LSN up to which the log was inserted when it began; runs that a checkpoint moves stay readable
in memory until its last transaction has synced; a stored state is never reported as not stored.
Source: storage design, "Index".
"""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from bookie.config import StorageConfig
from bookie.errors import BookieError, DiskFailedError
from bookie.files.disk import OrderedStore, StoreSizes, StoreTransaction
from bookie.index import index_pages, index_runs, stored_runs, stored_states
from bookie.index.index_pages import FLAG_FENCES_LOST, FLAG_LIMBO, CheckpointMeta
from bookie.index.index_runs import Lookup, Run
from bookie.index.stored_runs import Measured, RunMove
from bookie.index.stored_states import StoredIds
from metadata.ids import ENTRY_ID_MAX

StateEncoder = Callable[[int, int], bytes | None]
"""Returns the sealed state of a ledger, given its id and the highest entry id that the store will
hold; None when the ledger is not in memory.
"""

Runs = list[Run] | tuple[Run]
"""A ledger's runs in memory. Most ledgers have one run, kept in a tuple: Python's garbage collector
stops tracking a tuple after one pass, but scans a list in every pass.
"""


class Index:
    """The runs of every ledger."""

    def __init__(
        self,
        store: OrderedStore,
        config: StorageConfig,
        meta: CheckpointMeta,
        ids: StoredIds | None = None,
    ) -> None:
        """`ids`: the ledgers whose states are in the store; None: there are none."""
        self.meta = meta
        """The checkpoint's mark as of the last finished checkpoint."""
        self.record_count = 0
        """Records inserted since the last checkpoint began."""
        self.moving_count = 0
        """Records that the current checkpoint moves to the store."""
        self._store = store
        self._config = config
        self._ids = StoredIds() if ids is None else ids
        """Ledgers whose states are durable in the store."""
        self._current: dict[int, Runs] = {}
        self._frozen: dict[int, Runs] = {}
        self._frozen_mark_lsn = 0
        self._stored_damaged: list[int] = []
        self._stored_bytes: dict[int, int] = {}
        self._unstored_bytes = defaultdict[int, int](int)
        self._stored_meanwhile: dict[object, list[dict[int, Runs]]] = {}
        """For each running look-up: the runs that checkpoints have moved out of memory since it
        began.
        """

    @property
    def is_limbo(self) -> bool:
        """Whether stored data may have been lost: an entry not found is unknown (rule 2.4)."""
        return bool(self.meta.flags & FLAG_LIMBO)

    @property
    def may_have_lost_fences(self) -> bool:
        """Whether a ledger never seen here may have been fenced in lost data (rule 2.4)."""
        return bool(self.meta.flags & FLAG_FENCES_LOST)

    @property
    def run_count(self) -> int:
        """Number of runs in memory."""
        return sum(map(len, self._current.values())) + sum(map(len, self._frozen.values()))

    def insert(self, ledger_id: int, first: int, last: int, location: int, size: int) -> None:
        """Index one adds record, or part of it. The latest insert wins."""
        self.record_count += 1
        self._unstored_bytes[location >> 32] += size
        runs = self._current.get(ledger_id)
        if runs is None:
            self._current[ledger_id] = ((last, first, location, size),)
            return
        if isinstance(runs, tuple):
            runs = self._current[ledger_id] = list(runs)
        if first > runs[-1][0]:
            index_runs.append_run(runs, (last, first, location, size), self._config.run_bytes_max)
        else:
            index_runs.splice_run(runs, (last, first, location, size))

    def drop(self, ledger_id: int) -> dict[int, int]:
        """Remove a ledger's runs from memory and return their bytes by segment. `delete_all`
        deletes the runs that are in the store or being moved to it.
        """
        freed = stored_runs.bytes_by_segment(self._current.pop(ledger_id, ()))
        for number, size in freed.items():
            self._unstored_bytes[number] -= size
        return freed

    def live_bytes(self, number: int) -> int:
        """Return the bytes of a segment's runs, including those added since the last checkpoint."""
        return self._stored_bytes.get(number, 0) + self._unstored_bytes.get(number, 0)

    def growth_bytes(self, changes: int) -> int:
        """Return how many bytes the store's files may grow by when `changes` runs change."""
        return self._store.growth_bytes(changes)

    def is_moving(self, ledger_id: int) -> bool:
        """Return whether the current checkpoint moves runs of a ledger to the store."""
        return ledger_id in self._frozen

    def in_memory(self, ledger_id: int, first: int, last: int) -> list[Run]:
        """Return the runs in memory that overlap first..last, cut to that range."""
        upper = index_runs.find_runs(self._current.get(ledger_id, ()), first, last)
        lower = index_runs.find_runs(self._frozen.get(ledger_id, ()), first, last)
        return index_runs.overlay(upper, lower, first, last)

    def look_up_nowait(
        self, ledger_id: int, first: int, last: int, indexed_highest: int
    ) -> Lookup | None:
        """Return what is known of first..last if memory alone answers it; None if the store must be
        read.
        """
        runs = self.in_memory(ledger_id, first, last)
        if first > indexed_highest or not index_runs.find_gaps(runs, first, last):
            return Lookup(runs, last, is_unproven=False)
        return None

    async def look_up(
        self, ledger_id: int, first: int, last: int, indexed_highest: int, limit: int
    ) -> Lookup:
        """Return what is known of first..last, or of a shorter range: at most `limit` runs come
        from the store, and at most `limit` from each of the two parts of the memory.

        A checkpoint may end while the store is read, so the store's answer may be older than that
        checkpoint. The result is complete anyway. A record that was durable when the call began was
        in memory then (`before`) or already in the store. A record that became durable later is in
        memory at the end, or a checkpoint that ended during the call moved it out of memory: those
        runs are kept for the call. Where runs overlap, the latest insert wins.
        """
        for part in (self._current, self._frozen):
            last = index_runs.reach(part.get(ledger_id, ()), first, last, limit)
        lookup = self.look_up_nowait(ledger_id, first, last, indexed_highest)
        if lookup is not None:
            return lookup
        before = self.in_memory(ledger_id, first, last)
        stored_last = min(last, indexed_highest)
        call, meanwhile = object(), list[dict[int, Runs]]()
        self._stored_meanwhile[call] = meanwhile
        try:
            stored = await self._store.view(
                lambda t: stored_runs.look_up(t, ledger_id, first, stored_last, limit)
            )
        finally:
            del self._stored_meanwhile[call]
        is_whole = stored.known_to >= stored_last
        known_to = last if is_whole else stored.known_to
        runs = index_runs.overlay(before, stored.runs, first, last)
        for moved in meanwhile:
            newer = index_runs.find_runs(moved.get(ledger_id, ()), first, last)
            runs = index_runs.overlay(newer, runs, first, last)
        runs = index_runs.overlay(self.in_memory(ledger_id, first, last), runs, first, last)
        return Lookup(runs, known_to, is_unproven=stored.is_unproven and not is_whole)

    def drop_unstored(self, ledger_ids: Iterable[int]) -> None:
        """Remove the runs of deleted ledgers that a checkpoint left in memory because the disk was
        full. Only deletions make room there. Not to be called during a checkpoint.
        """
        if self._frozen:
            for ledger_id in ledger_ids:
                self._frozen.pop(ledger_id, None)

    async def checkpoint(
        self,
        mark_lsn: int,
        unsaved: dict[int, None],
        encode: StateEncoder,
        removed: Sequence[int],
        highest_of: Callable[[int], int],
        rest: Callable[[float], Awaitable[None]] | None = None,
    ) -> None:
        """Move the runs in memory and the given ledgers' states to the store, then the mark.
        `highest_of` returns the highest entry id that the store should already hold of a ledger, so
        that a run lost at its end is noticed. `removed` lists the segments that were removed.
        `rest` is awaited after each transaction with its duration in seconds. Raises DiskFullError:
        everything stays in memory, and the next checkpoint begins with it.
        """
        if not self._frozen:
            self._frozen, self._current = self._current, {}
            self._unstored_bytes = defaultdict(int)
            self._frozen_mark_lsn = mark_lsn
            self.moving_count, self.record_count = self.record_count, 0
        frozen, mark = self._frozen, self._frozen_mark_lsn
        now = asyncio.get_running_loop().time
        for job in self._run_jobs(frozen, highest_of):
            began_s = now()
            await self._store.update(job, keeps_room=True)
            if rest is not None:
                await rest(now() - began_s)
        # The state of every ledger whose runs moved is stored too: it holds their highest entry id.
        chosen = itertools.chain(unsaved, (id_ for id_ in frozen if id_ not in unsaved))
        for values in self._state_pages(frozen, chosen, encode):
            await self._store.update(_write_states(values), keeps_room=True)
            for ledger_id, _ in values:
                self._ids.add(ledger_id)

        def finish(transaction: StoreTransaction) -> tuple[CheckpointMeta, dict[int, int]]:
            live = stored_runs.remove_segments(transaction, removed)
            return _change_meta(transaction, mark_lsn=mark), live

        self.meta, self._stored_bytes = await self._store.update(finish)
        self._frozen, self.moving_count = {}, 0
        for stored_meanwhile in self._stored_meanwhile.values():
            stored_meanwhile.append(frozen)

    async def set_flags(self, flags: int) -> None:
        """Store the limbo flags durably, outside of any checkpoint."""
        self.meta = await self._store.update(lambda t: _change_meta(t, flags=flags))

    async def delete_all(
        self, ledger_ids: Sequence[int], free: Callable[[dict[int, int]], None]
    ) -> None:
        """Delete every stored run of some ledgers, as many in one transaction as it may change;
        `free` is called with the bytes by segment. Durable on return. Raises DiskFullError.
        """
        limit = self._config.transaction_runs_max
        left = ledger_ids
        while left:
            part = left[:limit]
            job = partial(stored_runs.delete_runs, ledger_ids=part, limit=limit)
            freed, done_count = await self._store.update(job)
            free(freed)
            left = left[done_count:]

    async def has_runs(self, ledger_id: int) -> bool:
        """Return whether runs of a ledger are in the store."""
        return await self.stored_runs(ledger_id, 0, ENTRY_ID_MAX) != []

    async def stored_runs(self, ledger_id: int, first: int, last: int) -> list[Run] | None:
        """Return the store's complete runs that overlap first..last; None when one is damaged or
        missing.
        """
        return await self._store.view(lambda t: stored_runs.list_runs(t, ledger_id, first, last))

    async def store_damaged(self, numbers: list[int]) -> None:
        """Store durably which segments hold damage, if that changed."""
        if numbers != self._stored_damaged:
            gone = [number for number in self._stored_damaged if number not in numbers]
            await self._store.update(lambda t: stored_runs.change_damaged(t, numbers, gone))
            self._stored_damaged = numbers

    async def store_measured(self, measured: dict[int, Measured]) -> None:
        """Store durably what cleaning has measured of some segments. Raises DiskFullError."""
        if measured:
            job = partial(stored_runs.put_measured, measured=measured)
            await self._store.update(job, keeps_room=True)

    async def correct_live_bytes(self, number: int, change: int) -> None:
        """Add `change` to the stored live bytes of a segment."""
        await self._store.update(lambda t: stored_runs.add_live_bytes(t, {number: change}))
        self._stored_bytes[number] = self._stored_bytes.get(number, 0) + change

    async def move(self, moves: list[RunMove]) -> dict[int, None]:
        """Replace the places of stored runs by new ones, durably, where the store still has the old
        ones. Return the segments of the runs that have changed.
        """
        job = partial(stored_runs.move_runs, moves=moves)
        return await self._store.update(job, keeps_room=True)

    def sizes(self) -> StoreSizes:
        """Return how many bytes the store uses."""
        return self._store.sizes()

    async def stored_states(self, ledger_ids: Sequence[int]) -> list[bytes | None]:
        """Return the stored forms of some ledgers' states, None for each that has none. Raises
        DiskFailedError if the store does not find a state that it has.
        """
        known = [ledger_id in self._ids for ledger_id in ledger_ids]
        values = await self._store.view(lambda t: stored_states.get_states(t, ledger_ids))
        for ledger_id, was_known, value in zip(ledger_ids, known, values, strict=True):
            # An id that is known before and after was not trimmed: no trimmed ledger comes back.
            if value is None and was_known and ledger_id in self._ids:
                raise _state_not_found(ledger_id)
        return values

    async def list_held(self, after: int, limit: int) -> tuple[list[int], int | None]:
        """See `stored_states.list_held`."""
        return await self._store.view(lambda t: stored_states.list_held(t, after, limit))

    async def list_runs_left(self, after: int, limit: int) -> tuple[list[int], int | None]:
        """See `stored_states.list_runs_left`."""
        return await self._store.view(lambda t: stored_states.list_runs_left(t, after, limit))

    async def find_tombstones(self, after: int, limit: int) -> tuple[list[int], int | None]:
        """See `stored_states.find_tombstones`."""
        limit = min(limit, self._config.transaction_runs_max)
        return await self._store.view(lambda t: stored_states.find_tombstones(t, after, limit))

    async def trim_tombstones(self, ledger_ids: Sequence[int]) -> int:
        """See `stored_states.trim_tombstones`. Durable on return."""
        for ledger_id in ledger_ids:  # before the commit: a look-up may miss them from then on
            self._ids.discard(ledger_id)
        try:
            return await self._store.update(lambda t: stored_states.trim_tombstones(t, ledger_ids))
        except BookieError:
            for ledger_id in ledger_ids:
                self._ids.add(ledger_id)
            raise

    async def put_in_limbo(self, *, fence: bool) -> None:
        """Put every stored ledger into limbo, durably, in transactions of bounded size."""
        after: int | None = -1
        while after is not None:
            job = partial(stored_states.put_in_limbo, after=after, fence=fence)
            after = await self._store.update(job)

    async def close(self) -> None:
        """Release the store."""
        await self._store.close()

    def _run_jobs(
        self, frozen: dict[int, Runs], highest_of: Callable[[int], int]
    ) -> Iterator[Callable[[StoreTransaction], None]]:
        part: list[tuple[int, Sequence[Run], int]] = []
        room = limit = self._config.transaction_runs_max
        for ledger_id, runs in frozen.items():
            highest = highest_of(ledger_id)
            for start in range(0, len(runs), limit):
                piece = runs[start : start + limit]
                if len(piece) > room:
                    yield _put_all(part)
                    part, room = [], limit
                part.append((ledger_id, piece, highest))
                highest = max(highest, piece[-1][0])
                room -= len(piece)
        if part:
            yield _put_all(part)

    def _state_pages(
        self, frozen: dict[int, Runs], chosen: Iterator[int], encode: StateEncoder
    ) -> Iterator[list[tuple[int, bytes]]]:
        while part := list(itertools.islice(chosen, self._config.transaction_runs_max)):
            values: list[tuple[int, bytes]] = []
            for ledger_id in part:
                runs = frozen.get(ledger_id)
                value = encode(ledger_id, runs[-1][0] if runs else -1)
                if value is not None:
                    values.append((ledger_id, value))
            yield values


def _state_not_found(ledger_id: int) -> DiskFailedError:
    return DiskFailedError(
        "index",
        f"the state of ledger {ledger_id} is stored, but a look-up does not find it: the index file"
        " is damaged. Run: quire bookie rebuild-index DIR",
    )


def _put_all(part: list[tuple[int, Sequence[Run], int]]) -> Callable[[StoreTransaction], None]:
    def job(transaction: StoreTransaction) -> None:
        changes: dict[int, int] = {}
        for ledger_id, runs, highest in part:
            for number, change in stored_runs.put_runs(
                transaction, ledger_id, runs, highest
            ).items():
                changes[number] = changes.get(number, 0) + change
        stored_runs.add_live_bytes(transaction, changes)

    return job


def _write_states(values: list[tuple[int, bytes]]) -> Callable[[StoreTransaction], None]:
    return lambda transaction: index_pages.write_states(transaction, values)


def _change_meta(
    transaction: StoreTransaction, *, mark_lsn: int | None = None, flags: int | None = None
) -> CheckpointMeta:
    meta = index_pages.require_meta(transaction)
    meta = replace(
        meta,
        mark_lsn=meta.mark_lsn if mark_lsn is None else mark_lsn,
        flags=meta.flags if flags is None else flags,
    )
    index_pages.write_meta(transaction, meta)
    return meta
