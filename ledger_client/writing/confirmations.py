"""What callers wait for: entries that are confirmed, on one bookie, or on their complete write set.

Leaves the LAC and the copies to the append protocol, and missing copies to repair. A failure that
is not awaited is not logged.

Source: protocol rules 4.5, 4.6 and 6.3; api design, "Cancelling"; topics design, "The mapping"
(acks=1).
"""

import asyncio
from bisect import bisect_right
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from ledger_client.errors import LedgerError, QuorumTimeoutError
from ledger_client.tasks import NextTick
from metadata.ids import NO_ENTRY, EntryId, LedgerId

Follower = Callable[[LedgerError | None], None]
"""Called with None after the LAC has moved, and with the error once pending entries have failed."""


class Confirmations:
    """Futures of appends, resolved in entry order as the LAC passes them, and one follower.

    There is one future per call, for any number of entries. The follower is called in a separate
    loop iteration, once for everything confirmed in the iteration before.
    """

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


class FirstReplicaWaiters:
    """Futures for the first copy of entries.

    An entry that one bookie stored durably may prove not to be in the ledger: only that one copy is
    promised.
    """

    def __init__(self) -> None:
        self._waiting: dict[EntryId, asyncio.Future[int]] = {}

    def expect(self, entry_id: EntryId) -> asyncio.Future[int]:
        """Return the future of the first copy of an entry that has just got its id."""
        waiting = self._waiting.get(entry_id)
        if waiting is None:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting[entry_id] = waiting
        return waiting

    @property
    def are_expected(self) -> bool:
        """Whether any future waits."""
        return bool(self._waiting)

    def note(self, first_entry_id: EntryId, last_entry_id: EntryId) -> None:
        """Record that a bookie stored a batch."""
        for number in range(first_entry_id, last_entry_id + 1):
            waiting = self._waiting.pop(EntryId(number), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(number)

    def fail(self, error: LedgerError) -> None:
        """Fail every future that waits."""
        waiting, self._waiting = self._waiting, {}
        for entry_id, future in waiting.items():
            if not future.done():
                future.set_exception(error.for_entry(entry_id, "unknown"))
                future.exception()  # a failure that is not awaited is not logged


STRETCHES_MAX: Final = 10_000
"""Maximum number of stretches recorded by one writer; above it, neighbours are merged with the gap
between them.
"""


class FullReplication:
    """What one writer knows about the copies of its confirmed entries."""

    def __init__(self, ledger_id: LedgerId) -> None:
        self.settled = NO_ENTRY
        self.ledger_id = ledger_id
        self._stretches: list[tuple[EntryId, EntryId]] = []
        self._waiters = OrderedWaiters()
        self._failure: LedgerError | None = None

    @property
    def stretches(self) -> tuple[tuple[EntryId, EntryId], ...]:
        """Ranges (first, last) of confirmed entries that are not on their complete write quorum."""
        return tuple(self._stretches)

    def record_stretch(self, first: EntryId, last: EntryId) -> None:
        """Record a range; ranges are reported in ascending order."""
        stretches = self._stretches
        is_full = len(stretches) >= STRETCHES_MAX
        if stretches and (stretches[-1][1] + 1 >= first or is_full):
            stretches[-1] = (stretches[-1][0], last)
        else:
            stretches.append((first, last))

    def settle(self, entry_id: EntryId) -> None:
        """Record that no answer for the entries up to this one is awaited any more."""
        self.settled = max(self.settled, entry_id)
        self._waiters.advance(self.settled)

    async def wait(self, entry_id: EntryId) -> None:
        """Return once an entry is on its complete write set. Raises QuorumTimeoutError if only a
        repair can bring it there.
        """
        if entry_id > self.settled and self._failure is None:
            await self._waiters.wait(entry_id)
        index = bisect_right(self._stretches, entry_id, key=lambda stretch: stretch[0]) - 1
        if index >= 0 and self._stretches[index][1] >= entry_id:
            first, last = self._stretches[index]
            raise QuorumTimeoutError(
                f"entries {first}..{last} are confirmed but not on their complete write quorum, "
                "because a bookie failed after the confirmation: `quire ledger verify "
                f"{self.ledger_id}` shows their copies",
                ledger_id=self.ledger_id,
                outcome="unknown",
                entry_id=entry_id,
            )
        if entry_id > self.settled and self._failure is not None:
            raise self._failure.for_entry(entry_id, "unknown")

    def fail(self, error: LedgerError) -> None:
        """Fail all waiters, now or later: no answer is awaited any more."""
        self._failure = error
        self._waiters.fail(error)

    async def wait_settled(self, entry_id: EntryId, at_most_s: float) -> None:
        """Wait for a limited time until no answer for the entries up to this one is awaited."""
        if entry_id <= self.settled or self._failure is not None:
            return
        with suppress(TimeoutError, LedgerError):
            async with asyncio.timeout(at_most_s):
                await self._waiters.wait(entry_id)
