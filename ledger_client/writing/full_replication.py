"""Full replication: when entries are on their complete write set, and which stretches never were.

Leaves copying these stretches to repair.

Source: protocol rules 4.6 and 6.3.
"""

import asyncio
from bisect import bisect_right
from contextlib import suppress
from typing import Final

from ledger_client.errors import LedgerError, QuorumTimeoutError
from ledger_client.writing.confirmations import OrderedWaiters
from metadata.ids import NO_ENTRY, EntryId, LedgerId

STRETCHES_MAX: Final = 10_000
"""Maximum number of stretches recorded by one writer; above it, neighbours are merged with the gap
between them.
"""


class FullReplication:
    """What one writer knows about the copies of its confirmed entries."""

    def __init__(self, ledger_id: LedgerId) -> None:
        self.settled = NO_ENTRY
        self.ledger_id = ledger_id
        self._stretches: list[tuple[EntryId, EntryId]] = []
        self._waiters = OrderedWaiters()
        self._failure: LedgerError | None = None

    @property
    def stretches(self) -> tuple[tuple[EntryId, EntryId], ...]:
        """Ranges (first, last) of confirmed entries that are not on their complete write quorum."""
        return tuple(self._stretches)

    def record_stretch(self, first: EntryId, last: EntryId) -> None:
        """Record a range; ranges are reported in ascending order."""
        stretches = self._stretches
        is_full = len(stretches) >= STRETCHES_MAX
        if stretches and (stretches[-1][1] + 1 >= first or is_full):
            stretches[-1] = (stretches[-1][0], last)
        else:
            stretches.append((first, last))

    def settle(self, entry_id: EntryId) -> None:
        """Record that no answer for the entries up to this one is awaited any more."""
        self.settled = max(self.settled, entry_id)
        self._waiters.advance(self.settled)

    async def wait(self, entry_id: EntryId) -> None:
        """Return once an entry is on its complete write set. Raises QuorumTimeoutError if only a
        repair can bring it there.
        """
        if entry_id > self.settled and self._failure is None:
            await self._waiters.wait(entry_id)
        index = bisect_right(self._stretches, entry_id, key=lambda stretch: stretch[0]) - 1
        if index >= 0 and self._stretches[index][1] >= entry_id:
            first, last = self._stretches[index]
            raise QuorumTimeoutError(
                f"entries {first}..{last} are confirmed but not on their complete write quorum, "
                "because a bookie failed after the confirmation: `quire ledger verify "
                f"{self.ledger_id}` shows their copies",
                ledger_id=self.ledger_id,
                outcome="unknown",
                entry_id=entry_id,
            )
        if entry_id > self.settled and self._failure is not None:
            raise self._failure.for_entry(entry_id, "unknown")

    def fail(self, error: LedgerError) -> None:
        """Fail all waiters, now or later: no answer is awaited any more."""
        self._failure = error
        self._waiters.fail(error)

    async def wait_settled(self, entry_id: EntryId, at_most_s: float) -> None:
        """Wait for a limited time until no answer for the entries up to this one is awaited."""
        if entry_id <= self.settled or self._failure is not None:
            return
        with suppress(TimeoutError, LedgerError):
            async with asyncio.timeout(at_most_s):
                await self._waiters.wait(entry_id)
