"""Work that concerns many ledgers of one client: in slices, in turns, and at a limited rate.

One event can concern each ledger of a client: a bookie that leaves or joins, a lost connection with
an add of every ledger, a session of the metadata service that comes back and calls every watch.

Leaves the work itself to its owners, and batches of metadata requests to `metadata.store.batching`.

Source: protocol rules 4.6, 4.8, 5.2, 5.6 and 11.3; metadata design, "Storms" and "Watches".
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Iterator
from heapq import heappop, heappush
from random import Random
from typing import Final

from ledger_client.tasks import BackgroundTasks
from metadata.ids import LedgerId

Call = Callable[[], None]


class Slices:
    """Queue of calls of one client's writers, made in slices that do not hold up the event loop.

    Invariants: one slice per iteration of the event loop; no call starts once a slice has lasted
    `slice_max_s`; single calls come before rounds, and rounds take turns; an error of one call is
    reported to the loop, and the others are still made.
    """

    def __init__(
        self,
        slice_max_s: float,
        clock: Callable[[], float],
        call_soon: Callable[[Call], object],
    ) -> None:
        """`call_soon` makes a call in the next iteration of the loop, `clock` is the loop's."""
        self._slice_max_s = slice_max_s
        self._clock = clock
        self._call_soon = call_soon
        self._calls: deque[Call] = deque()
        self._rounds: deque[Iterator[Call]] = deque()
        self._is_scheduled = False
        self._is_closed = False

    def soon(self, call: Call) -> None:
        """Make one call."""
        if not self._is_closed:
            self._calls.append(call)
            self._schedule()

    def each(self, calls: Iterable[Call]) -> None:
        """Make a round of calls. The iterable yields each one right before it is made."""
        if not self._is_closed:
            self._rounds.append(iter(calls))
            self._schedule()

    def close(self) -> None:
        """Drop all calls, also later ones."""
        self._is_closed = True
        self._calls.clear()
        self._rounds.clear()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._call_soon(self._run)

    def _run(self) -> None:
        end_s = self._clock() + self._slice_max_s
        try:
            while (call := self._next()) is not None:
                try:
                    call()
                except Exception as error:  # noqa: BLE001 - it is reported, and the others are made
                    what = {"message": "a call for one ledger failed", "exception": error}
                    asyncio.get_running_loop().call_exception_handler(what)
                if self._clock() >= end_s:
                    break
        finally:
            self._is_scheduled = False
            if self._calls or self._rounds:
                self._schedule()

    def _next(self) -> Call | None:
        if self._calls:
            return self._calls.popleft()
        while self._rounds:
            call = next(self._rounds[0], None)
            if call is not None:
                self._rounds.rotate(-1)
                return call
            self._rounds.popleft()
        return None


TurnKey = tuple[LedgerId, str]
"""A ledger, and what the turn is for."""


class LedgerTurns:
    """Turns of one client's ledgers, of which a limited number works at the same time.

    A ledger that waits for a turn to leave out a member that it can still use, or to take one back,
    continues meanwhile. A ledger that confirms nothing until its change is stored comes first.

    Invariants: fewer than `at_once_max` tasks are under way when a turn begins; the turns begin in
    the order in which they were requested, the urgent ones first; a turn is requested once for each
    key.
    """

    def __init__(self, at_once_max: int, slices: Slices) -> None:
        self._at_once_max = at_once_max
        self._slices = slices
        self._urgent: OrderedDict[TurnKey, Call] = OrderedDict()
        self._waiting: OrderedDict[TurnKey, Call] = OrderedDict()
        self._under_way = 0
        self._is_beginning = False

    def want(self, key: TurnKey, begin: Call, *, urgent: bool) -> None:
        """Call `begin` when it is the ledger's turn; it passes the task that it starts, if it does,
        to `count`. A later request with the same key keeps the place of the first one.
        """
        if urgent:
            self._waiting.pop(key, None)
            self._urgent[key] = begin
        elif key not in self._urgent:
            self._waiting[key] = begin
        self._begin_next()

    def count(self, work: asyncio.Task[None]) -> None:
        """Count a task as under way until it ends."""
        self._under_way += 1
        work.add_done_callback(self._ended)

    def _ended(self, _work: asyncio.Task[None]) -> None:
        self._under_way -= 1
        self._begin_next()

    @property
    def _has_turn_for_next(self) -> bool:
        has_next = bool(self._urgent or self._waiting)
        return has_next and self._under_way < self._at_once_max

    def _begin_next(self) -> None:
        if not self._is_beginning and self._has_turn_for_next:
            self._is_beginning = True
            self._slices.each(self._begins())

    def _begins(self) -> Iterator[Call]:
        while self._has_turn_for_next:
            queue = self._urgent or self._waiting
            yield queue.popitem(last=False)[1]
        self._is_beginning = False


READ_DELAY_MAX_S: Final = 0.5
"""Maximum delay of a read, in seconds; half of it is random. Two calls of one watch for one change
cause one read.
"""
Read = Callable[[], Awaitable[None]]


class MetadataReads:
    """Metadata reads of one client's writers, spread in time, and limited in rate and number.

    Invariants: a ledger waits at most once; no read starts before its own random delay has passed;
    at most `per_s` reads start per second, and at most `at_once_max` are under way.
    """

    def __init__(self, rng: Random, per_s: int, at_once_max: int) -> None:
        self._rng = rng
        self._interval_s = 1 / per_s
        self._at_once_max = at_once_max
        self._wanted: dict[LedgerId, tuple[float, Read]] = {}
        """Waiting reads, with the loop times at which they are due."""
        self._due: list[tuple[float, LedgerId]] = []
        """A heap; a cancelled read stays in it until it is due."""
        self._next_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._running = 0
        self._tasks = BackgroundTasks()

    def want(self, ledger_id: LedgerId, read: Read, delay_max_s: float = READ_DELAY_MAX_S) -> None:
        """Call `read` once, soon; does nothing while the ledger waits for a read."""
        if ledger_id in self._wanted:
            return
        delay_s = delay_max_s * (0.5 + self._rng.random() / 2)
        due_s = asyncio.get_running_loop().time() + delay_s
        self._wanted[ledger_id] = due_s, read
        heappush(self._due, (due_s, ledger_id))
        self._arm()

    def cancel(self, ledger_id: LedgerId) -> None:
        """Do not start the read of a ledger that waits for one."""
        self._wanted.pop(ledger_id, None)

    async def aclose(self) -> None:
        """Cancel all waiting and running reads."""
        self._wanted.clear()
        self._due.clear()
        self._arm()
        await self._tasks.aclose()

    def _arm(self) -> None:
        """Set the timer to the next read that may start."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._due and self._running < self._at_once_max:
            at = max(self._due[0][0], self._next_at)
            self._timer = asyncio.get_running_loop().call_at(at, self._start_next)

    def _start_next(self) -> None:
        due_s, ledger_id = heappop(self._due)
        wanted_s, read = self._wanted.get(ledger_id, (None, None))
        if read is not None and wanted_s == due_s:  # else it was cancelled
            del self._wanted[ledger_id]
            self._next_at = asyncio.get_running_loop().time() + self._interval_s
            self._running += 1
            self._tasks.start(self._perform(read))
        self._arm()

    async def _perform(self, read: Read) -> None:
        try:
            await read()
        finally:
            self._running -= 1
            self._arm()
