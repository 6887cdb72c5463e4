"""Queue of metadata reads of one client's writers: spread in time, and limited in rate and number.

Leaves the reasons for a read, and its result, to the callers.

One event can concern every ledger of a client: a session that comes back calls every watch, and a
lost bookie changes the metadata of all its ledgers. Each read waits for a random time, and starts
when the rate permits.

Invariants: a ledger waits at most once; no read starts before its own delay has passed; at most
`per_s` reads start per second, and at most `at_once_max` are under way.

Source: protocol rule 4.8; metadata design, "Watches".
"""

import asyncio
from collections.abc import Awaitable, Callable
from heapq import heappop, heappush
from random import Random
from typing import Final

from ledger_client.tasks import BackgroundTasks
from metadata.ids import LedgerId

READ_DELAY_MAX_S: Final = 0.5
"""Maximum delay of a read, in seconds; half of it is random. Two calls of one watch for one change
cause one read.
"""

Read = Callable[[], Awaitable[None]]


class MetadataReads:
    """Reads of all writers of one client."""

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
