"""Bounds how many partitions of a broker are taken over at once, without waiting for the slow ones.

Leaves taking over to `held_partition`.

A takeover is quick while bookies answer. One that waits for a bookie that does not holds up nobody
else for longer than a moment: then it goes on, and its slot is another's.

Invariant: a slot is given back exactly once.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TakeOverSlots:
    """So many slots, each held by one takeover for a bounded time."""

    def __init__(self, count: int, held_s_max: float) -> None:
        self._free = asyncio.Semaphore(count)
        self._held_s_max = held_s_max

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a slot, and hold it until the end, or for as long as it may be held."""
        await self._free.acquire()
        is_held = True

        def give_back() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._held_s_max, give_back)
        try:
            yield
        finally:
            timer.cancel()
            give_back()
