"""Watch of the latency of clients' appends at the bookies that take part in copies.

Leaves what follows from it to `copy_shares`, and measuring to the bookies.

Invariant: each bookie is asked once per look, for at most PING_S_MAX. One that does not answer
counts as one without appends.

Source: protocol rule 9.3; docs/repair.md, "Limits".
"""

import asyncio
from typing import Final

from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from metadata.ids import BookieId
from quire.repair.pacing.copy_shares import CopyShares

LOOK_EVERY_S: Final = 5.0
"""Time between two looks: a bookie's answer is about the last five to ten seconds."""
PING_S_MAX: Final = 2.0


class AppendWatch:
    """Looks at the bookies that a worker uses."""

    def __init__(self, pool: BookiePool, shares: CopyShares) -> None:
        self._pool = pool
        self._shares = shares

    async def run(self) -> None:
        """Look again and again, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self._look()

    async def _look(self) -> None:
        bookies = self._shares.watched
        answers = await asyncio.gather(*[self._p99_us(each) for each in bookies])
        for bookie_id, p99_us in zip(bookies, answers, strict=True):
            self._shares.note_p99(bookie_id, p99_us)

    async def _p99_us(self, bookie_id: BookieId) -> int:
        try:
            return (await self._pool.ping(bookie_id, timeout_s=PING_S_MAX)).append_p99_us
        except BookieCallError:
            return 0
