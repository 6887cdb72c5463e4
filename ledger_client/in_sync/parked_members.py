"""Probes of parked members, until they answer again.

Leaves putting them back to the append protocol. Failures are ignored: the next period tries again.

Source: protocol rules 4.6 and 5.5.
"""

from collections.abc import Callable, Sequence
from typing import Final

from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.tasks import BackgroundTasks
from metadata.ids import BookieId

PROBE_PERIOD_S: Final = 1.0
RETURN_BYTES: Final = 1024 * 1024
"""Maximum unanswered bytes with which a member parked for its backlog is probed."""


class ParkedMembers:
    """Checks whether parked members of one ensemble accept adds again."""

    def __init__(
        self, pool: BookiePool, timeout_s: float, on_returned: Callable[[BookieId], None]
    ) -> None:
        self._pool = pool
        self._timeout_s = timeout_s
        self._on_returned = on_returned
        self._probed_at = 0.0
        self._tasks = BackgroundTasks()

    def probe(self, parked: Sequence[BookieId], now: float) -> None:
        """Probe the parked members, at most once per period."""
        if not parked or now - self._probed_at < PROBE_PERIOD_S:
            return
        self._probed_at = now
        for bookie_id in parked:
            if self._pool.unanswered_bytes(bookie_id) < RETURN_BYTES:
                self._tasks.start(self._ask(bookie_id))

    async def aclose(self) -> None:
        """Cancel running probes."""
        await self._tasks.aclose()

    async def _ask(self, bookie_id: BookieId) -> None:
        try:
            answer = await self._pool.ping(bookie_id, timeout_s=self._timeout_s)
        except BookieCallError:
            return
        if answer.writable:
            self._on_returned(bookie_id)
