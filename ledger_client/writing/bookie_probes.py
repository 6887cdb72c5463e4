"""Probes of bookies for which writers wait: one at a time for each bookie of a client.

Leaves the reaction to the writers, and the time that it takes to `slices`. Failures are ignored:
the next period tries again.

Invariants: one bookie is probed at most once per period, however many writers wait for it; each
waiting writer is called once, after an answer that says that the bookie is writable.

Source: protocol rules 4.6, 5.5 and 11.3.
"""

import asyncio
from typing import Final

from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.tasks import BackgroundTasks
from ledger_client.writing.slices import Call, Slices
from metadata.ids import BookieId, LedgerId

PROBE_PERIOD_S: Final = 1.0
RETURN_BYTES: Final = 1024 * 1024
"""Maximum unanswered bytes of a bookie that is taken back."""


class BookieProbes:
    """Bookies for which the writers of one client wait."""

    def __init__(self, pool: BookiePool, timeout_s: float, slices: Slices) -> None:
        self._pool = pool
        self._timeout_s = timeout_s
        self._slices = slices
        self._waiting: dict[BookieId, dict[LedgerId, Call]] = {}
        """The bookies that are probed, and for each the writers to call."""
        self._tasks = BackgroundTasks()

    def want(self, bookie_id: BookieId, ledger_id: LedgerId, on_ready: Call) -> None:
        """Call `on_ready` once when the bookie accepts adds; a repeated request has no effect."""
        waiting = self._waiting.get(bookie_id)
        if waiting is None:
            waiting = self._waiting[bookie_id] = {}
            self._tasks.start(self._probe(bookie_id, waiting))
        waiting.setdefault(ledger_id, on_ready)

    def cancel(self, ledger_id: LedgerId) -> None:
        """Call nothing for a ledger any more."""
        for waiting in self._waiting.values():
            waiting.pop(ledger_id, None)

    async def aclose(self) -> None:
        """Stop all probes."""
        await self._tasks.aclose()

    async def _probe(self, bookie_id: BookieId, waiting: dict[LedgerId, Call]) -> None:
        """Probe a bookie once per period until no writer waits for it."""
        try:
            while waiting:
                if await self._is_ready(bookie_id):
                    self._slices.each(list(waiting.values()))
                    waiting.clear()
                await asyncio.sleep(PROBE_PERIOD_S)
        finally:
            del self._waiting[bookie_id]

    async def _is_ready(self, bookie_id: BookieId) -> bool:
        if self._pool.unanswered_bytes(bookie_id) >= RETURN_BYTES:
            return False
        try:
            answer = await self._pool.ping(bookie_id, timeout_s=self._timeout_s)
        except BookieCallError:
            return False
        return answer.writable
