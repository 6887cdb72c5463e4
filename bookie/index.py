"""Finds where entries lie: in memory for what came since the last checkpoint, in the store for what
is older.

Leaves the stored form to `bookie.index_pages` and the ledger states to `bookie.storage`.

Invariants: only durable records are inserted, in the order of the log; the mark of a checkpoint is
the LSN up to which the log was inserted when it began; what a checkpoint is moving stays readable
in memory until its last transaction has synced.
Source: storage design, "Index".
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace

from bookie import index_pages, index_runs
from bookie.config import StorageConfig
from bookie.index_pages import Meta, Move
from bookie.index_runs import Lookup, Run
from bookie.index_store import OrderedStore, Transaction

StateEncoder = Callable[[int, int], bytes | None]
"""Given a ledger id and the highest entry id that the store will hold, returns its sealed state;
None when it is gone.
"""


class Index:
    """The runs of every ledger."""

    def __init__(self, store: OrderedStore, config: StorageConfig, meta: Meta) -> None:
        self.meta = meta
        """As of the last finished checkpoint."""
        self.record_count = 0
        """Records inserted since the last checkpoint began."""
        self._store = store
        self._config = config
        self._current: dict[int, list[Run]] = {}
        self._frozen: dict[int, list[Run]] = {}
        self._frozen_mark_lsn = 0

    @property
    def run_count(self) -> int:
        """Runs in memory."""
        return sum(map(len, self._current.values())) + sum(map(len, self._frozen.values()))

    def insert(self, ledger_id: int, first: int, last: int, location: int, size: int) -> None:
        """Index one adds record, or part of it; the latest insert wins."""
        self.record_count += 1
        runs = self._current.get(ledger_id)
        if runs is None:
            self._current[ledger_id] = [(last, first, location, size)]
        elif first > runs[-1][0]:
            index_runs.append_run(runs, (last, first, location, size), self._config.run_bytes_max)
        else:
            index_runs.splice_run(runs, (last, first, location, size))

    def drop(self, ledger_id: int) -> dict[int, int]:
        """Forget a ledger's runs in memory, and return their bytes by segment; those in the store,
        and on their way there, are deleted by `delete_some`.
        """
        return index_pages.bytes_by_segment(self._current.pop(ledger_id, []))

    def is_moving(self, ledger_id: int) -> bool:
        """Tell whether runs of a ledger are on their way to the store."""
        return ledger_id in self._frozen

    def in_memory(self, ledger_id: int, first: int, last: int) -> list[Run]:
        """Return what the memory holds of first..last, cut to it."""
        upper = index_runs.find_runs(self._current.get(ledger_id, []), first, last)
        lower = index_runs.find_runs(self._frozen.get(ledger_id, []), first, last)
        return index_runs.overlay(upper, lower, first, last)

    def look_up_nowait(
        self, ledger_id: int, first: int, last: int, indexed_highest: int
    ) -> Lookup | None:
        """Return what is known of first..last when the store need not be asked, else None."""
        runs = self.in_memory(ledger_id, first, last)
        if first > indexed_highest or not index_runs.find_gaps(runs, first, last):
            return Lookup(runs, last, is_unproven=False)
        return None

    async def look_up(
        self, ledger_id: int, first: int, last: int, indexed_highest: int, limit: int
    ) -> Lookup:
        """Return what is known of first..last; at most `limit` runs come from the store."""
        found = self.look_up_nowait(ledger_id, first, last, indexed_highest)
        if found is not None:
            return found
        # What a checkpoint takes from the memory while the store is asked is not missed.
        before = self.in_memory(ledger_id, first, last)
        stored_last = min(last, indexed_highest)
        stored = await self._store.view(
            lambda t: index_pages.look_up(t, ledger_id, first, stored_last, limit)
        )
        is_whole = stored.known_to >= stored_last
        known_to = last if is_whole else stored.known_to
        runs = index_runs.overlay(before, stored.runs, first, last)
        runs = index_runs.overlay(self.in_memory(ledger_id, first, last), runs, first, last)
        return Lookup(runs, known_to, is_unproven=stored.is_unproven and not is_whole)

    async def checkpoint(
        self,
        mark_lsn: int,
        unsaved: list[int],
        encode: StateEncoder,
        live: list[tuple[int, int | None]],
        highest_of: Callable[[int], int],
        rest: Callable[[float], Awaitable[None]] | None = None,
    ) -> list[tuple[int, int]]:
        """Move the memory's runs and the given ledgers' states to the store, then the mark; return
        each moved ledger's highest stored id. `highest_of` says which one the store should hold
        already, so that a run lost at its end is noticed. `rest` is told how long each of its
        transactions took, and awaited. Raises DiskFullError: all stays in memory and the next
        checkpoint begins with it.
        """
        if not self._frozen:
            self._frozen, self._current = self._current, {}
            self._frozen_mark_lsn, self.record_count = mark_lsn, 0
        frozen, mark = self._frozen, self._frozen_mark_lsn
        now = asyncio.get_running_loop().time
        for job in self._run_jobs(frozen, highest_of):
            began_s = now()
            await self._store.update(job)
            if rest is not None:
                await rest(now() - began_s)
        # The state of every ledger whose runs moved is stored too: it says how high they go.
        chosen = list(dict.fromkeys([*unsaved, *frozen]))
        for job in self._state_jobs(frozen, chosen, encode):
            await self._store.update(job)

        def finish(transaction: Transaction) -> Meta:
            index_pages.write_live_bytes(transaction, live)
            return _change_meta(transaction, mark_lsn=mark)

        self.meta = await self._store.update(finish)
        self._frozen = {}
        return [(ledger_id, runs[-1][0]) for ledger_id, runs in frozen.items()]

    async def set_flags(self, flags: int) -> None:
        """Store limbo durably, at once."""
        self.meta = await self._store.update(lambda t: _change_meta(t, flags=flags))

    async def delete_some(self, ledger_id: int) -> tuple[dict[int, int], bool]:
        """Delete one transaction's worth of a ledger's stored runs; return the bytes freed by
        segment and whether all went.
        """
        limit = self._config.transaction_runs_max
        return await self._store.update(lambda t: index_pages.delete_runs(t, ledger_id, limit))

    async def stored_runs(self, ledger_id: int, first: int, last: int) -> list[Run] | None:
        """Return the store's runs that touch first..last, whole; None when it cannot account for
        all of them.
        """
        return await self._store.view(lambda t: index_pages.list_runs(t, ledger_id, first, last))

    async def move(self, moves: list[Move]) -> dict[int, None]:
        """Give stored runs their new places where the store still names the old ones, durably;
        return the segments of those that it names otherwise by now.
        """
        return await self._store.update(lambda t: index_pages.move_runs(t, moves))

    async def close(self) -> None:
        """Release the store."""
        await self._store.close()

    def _run_jobs(
        self, frozen: dict[int, list[Run]], highest_of: Callable[[int], int]
    ) -> Iterator[Callable[[Transaction], None]]:
        part: list[tuple[int, list[Run], int]] = []
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

    def _state_jobs(
        self, frozen: dict[int, list[Run]], chosen: list[int], encode: StateEncoder
    ) -> Iterator[Callable[[Transaction], None]]:
        limit = self._config.transaction_runs_max
        for start in range(0, len(chosen), limit):
            values: list[tuple[int, bytes]] = []
            for ledger_id in chosen[start : start + limit]:
                runs = frozen.get(ledger_id)
                value = encode(ledger_id, runs[-1][0] if runs else -1)
                if value is not None:
                    values.append((ledger_id, value))
            yield _write_states(values)


def _put_all(part: list[tuple[int, list[Run], int]]) -> Callable[[Transaction], None]:
    def job(transaction: Transaction) -> None:
        for ledger_id, runs, highest in part:
            index_pages.put_runs(transaction, ledger_id, runs, highest)

    return job


def _write_states(values: list[tuple[int, bytes]]) -> Callable[[Transaction], None]:
    return lambda transaction: index_pages.write_states(transaction, values)


def _change_meta(
    transaction: Transaction, *, mark_lsn: int | None = None, flags: int | None = None
) -> Meta:
    meta = index_pages.require_meta(transaction)
    meta = replace(
        meta,
        mark_lsn=meta.mark_lsn if mark_lsn is None else mark_lsn,
        flags=meta.flags if flags is None else flags,
    )
    index_pages.write_meta(transaction, meta)
    return meta
