"""What an open reader holds in its client: the watch of its ledger, and the ledger's key in the
pool.

Leaves reading to `reader.py`.

Invariant: each hold is released once, also that of a reader that is dropped without a close.
"""

import asyncio
import warnings
from contextlib import suppress

from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys
from ledger_client.own_loop import ForkGuard
from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.tasks import BackgroundTasks


class ReaderHold:
    """Hold of one reader, from its start until it is closed or dropped."""

    def __init__(
        self, ledger: FollowedLedger, keys: LedgerKeys, pool: BookiePool, guard: ForkGuard
    ) -> None:
        """Follow the ledger and attach its key. Raises UnauthorizedError."""
        pool.attach(ledger.ledger_id, keys.master_key)
        self._ledger = ledger
        self._pool = pool
        self._guard = guard
        self._loop = asyncio.get_running_loop()
        self._tasks = BackgroundTasks()
        ledger.start()

    async def release(self) -> None:
        """Stop following the ledger, and detach its key."""
        await self._ledger.aclose()
        self._pool.detach(self._ledger.ledger_id)

    def drop(self) -> None:
        """Release in the background, with a ResourceWarning: the reader is gone. Any thread may
        call this.
        """
        if self._guard.is_forked or self._loop.is_closed():
            return  # nothing is held any more, or by the parent
        with suppress(RuntimeError):  # the loop was closed just now
            self._loop.call_soon_threadsafe(self._release_later)
        text = f"a reader of ledger {self._ledger.ledger_id} was dropped: call aclose() first"
        warnings.warn(text, ResourceWarning, stacklevel=3)

    def _release_later(self) -> None:
        self._tasks.start(self.release())
