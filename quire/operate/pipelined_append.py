"""Pipelined append of groups of entries: one group after the other, without waiting for each.

Leaves batches, order and the window to the writer.

Invariants: entries get ids in the order in which their groups were added; at most
GROUPS_PENDING_MAX groups are unconfirmed; the first failure is raised, and the groups added after
it are abandoned.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Self

from ledger_client import LedgerWriter
from metadata.cancelling import cancel_and_wait

GROUPS_PENDING_MAX: Final = 32


class PipelinedAppend:
    """Groups on their way into one ledger; the end of the block waits for all of them."""

    def __init__(self, ledger: LedgerWriter, on_confirmed: Callable[[int], None]) -> None:
        self._ledger = ledger
        self._on_confirmed = on_confirmed
        self._pending: deque[asyncio.Task[range]] = deque()

    async def add(self, entries: Sequence[bytes]) -> None:
        """Append a group; wait while too many are pending."""
        self._pending.append(asyncio.create_task(self._ledger.append_many(entries)))
        await asyncio.sleep(0)  # lets the writer send it and receive responses
        while len(self._pending) > GROUPS_PENDING_MAX or self._pending[0].done():
            await self._take_first()
            if not self._pending:
                return

    async def _take_first(self) -> None:
        self._on_confirmed(len(await self._pending.popleft()))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        try:
            while error is None and self._pending:
                await self._take_first()
        finally:
            await cancel_and_wait(*self._pending)
