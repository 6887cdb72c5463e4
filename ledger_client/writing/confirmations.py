"""Futures of appends, resolved in entry order as the LAC passes them, and the follower of the LAC.

Leaves the LAC to the append protocol.

Invariants: waiters are resolved in order; a failure that is not awaited is not logged; there is one
waiter per call, for any number of entries; the follower is called in a separate loop iteration,
once for everything confirmed in the iteration before.

Source: protocol rule 4.5; api design, "Cancelling".
"""

import asyncio
from collections import deque
from collections.abc import Callable

from ledger_client.errors import LedgerError
from ledger_client.next_tick import NextTick
from metadata.ids import NO_ENTRY, EntryId

Follower = Callable[[LedgerError | None], None]
"""Called with None after the LAC has moved, and with the error once pending entries have failed."""


class Confirmations:
    """Futures in entry order, each for the entries up to its last id; and one follower."""

    def __init__(self, next_tick: NextTick) -> None:
        self._next_tick = next_tick
        self._loop = asyncio.get_running_loop()
        self._follower: Follower | None = None
        self._is_call_due = False
        self._waiting: deque[tuple[EntryId, asyncio.Future[int]]] = deque()
        self._lac = NO_ENTRY
        self._failure: LedgerError | None = None

    def follow(self, follower: Follower) -> None:
        """Report every move of the LAC, and the failure, from now on: for a caller that appends
        many entries and would do the same for each future.
        """
        assert self._follower is None, "a ledger has one follower"
        self._follower = follower

    def expect(self, entry_id: EntryId) -> asyncio.Future[int]:
        """Return the future of an entry; calls must be in ascending order. It is resolved already
        if the entry is confirmed or everything has failed.
        """
        assert not self._waiting or self._waiting[-1][0] <= entry_id, "expected in order"
        future: asyncio.Future[int] = self._loop.create_future()
        if entry_id <= self._lac:
            future.set_result(entry_id)
        elif self._failure is not None:
            _fail(future, self._failure, entry_id)
        else:
            self._waiting.append((entry_id, future))
        return future

    def confirm(self, lac: EntryId) -> None:
        """Resolve every future up to the LAC with its entry id, and have the follower called in the
        next iteration of the event loop.
        """
        waiting, self._lac = self._waiting, lac
        while waiting and waiting[0][0] <= lac:
            entry_id, future = waiting.popleft()
            if not future.done():
                future.set_result(entry_id)
        self._call_follower_soon()

    def fail(self, error: LedgerError) -> None:
        """Fail everything that waits, now or later, each with its entry id; the entries may be
        stored.
        """
        self._failure = error
        while self._waiting:
            entry_id, future = self._waiting.popleft()
            if not future.done():
                _fail(future, error, entry_id)
        self._call_follower_soon()

    def _call_follower_soon(self) -> None:
        if self._follower is not None and not self._is_call_due:
            self._is_call_due = True
            self._next_tick.soon(self._call_follower)

    def _call_follower(self) -> None:
        self._is_call_due = False
        assert self._follower is not None, "it was set when the call was scheduled"
        self._follower(self._failure)


def _fail(future: asyncio.Future[int], error: LedgerError, entry_id: EntryId) -> None:
    future.set_exception(error.for_entry(entry_id, "unknown"))
    future.exception()  # mark it as read: a failure that is not awaited is not logged


class OrderedWaiters:
    """Futures that wait for an increasing entry id, registered in any order."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], EntryId] = {}

    def wait(self, entry_id: EntryId) -> asyncio.Future[None]:
        """Return a future that `advance` resolves; cancelled futures are dropped."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = entry_id
        future.add_done_callback(lambda done: self._waiting.pop(done, None))
        return future

    def advance(self, entry_id: EntryId) -> None:
        """Resolve every future for an entry up to this one."""
        if not self._waiting:
            return
        for future, wanted in list(self._waiting.items()):
            if wanted <= entry_id and not future.done():
                future.set_result(None)

    def fail(self, error: LedgerError) -> None:
        """Fail every future that still waits."""
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(error.fresh())
                future.exception()
