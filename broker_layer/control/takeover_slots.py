"""Limit of concurrent takeovers in a broker.

Leaves taking over to `assigned_partition`.

A takeover is quick while bookies answer. If one waits for a bookie that does not answer, it delays
others only for a limited time. Then it continues without its slot, and another takeover gets it.

Invariant: a slot is released exactly once.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TakeOverSlots:
    """`count` slots, each held by one takeover for at most `held_s_max` seconds."""

    def __init__(self, count: int, held_s_max: float) -> None:
        self._free = asyncio.Semaphore(count)
        self._held_s_max = held_s_max

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Wait for a slot; hold it until the end of the block, but not longer than `held_s_max`."""
        await self._free.acquire()
        is_held = True

        def release() -> None:
            nonlocal is_held
            if is_held:
                is_held = False
                self._free.release()

        timer = asyncio.get_running_loop().call_later(self._held_s_max, release)
        try:
            yield
        finally:
            timer.cancel()
            release()
