"""Tells the bookies a writer's LAC when no further append will carry it.

Leaves when to look to the watchdog. Failures are ignored: the next batch, or the close, tells as
much.

Source: protocol rule 8.4.
"""

from bookie.wire.messages import WriteLac
from ledger_client.connection_calls import BookieCallError
from ledger_client.pool import BookiePool
from ledger_client.tasks import BackgroundTasks
from metadata.ids import NO_ENTRY, BookieId, EntryId, LedgerId


class IdleLac:
    """What the bookies of one ledger were told of its LAC beside its batches."""

    def __init__(self, ledger_id: LedgerId, pool: BookiePool, timeout_s: float) -> None:
        self.told = NO_ENTRY
        self._ledger_id = ledger_id
        self._pool = pool
        self._timeout_s = timeout_s
        self._tasks = BackgroundTasks()

    def tell(self, lac: EntryId, bookie_ids: tuple[BookieId, ...]) -> None:
        """Send the LAC to every member of the last fragment: a reader may wait at any of them."""
        self.told = lac
        for bookie_id in bookie_ids:
            self._tasks.start(self._write(bookie_id, lac))

    async def aclose(self) -> None:
        """Give up what is under way."""
        await self._tasks.aclose()

    async def _write(self, bookie_id: BookieId, lac: EntryId) -> None:
        request = WriteLac(self._ledger_id, lac)
        try:
            await self._pool.write_lac(bookie_id, request, timeout_s=self._timeout_s)
        except BookieCallError:
            return
