"""Waiters for the first bookie that has stored an entry.

Leaves confirmation, which makes an entry part of the ledger, to `confirmations`.

Invariant: an entry that one bookie stored durably may prove not to be in the ledger: only that one
copy is promised.

Source: topics design, "The mapping" (acks=1).
"""

import asyncio

from ledger_client.errors import LedgerError
from metadata.ids import EntryId


class FirstReplicaWaiters:
    """Futures for the first copy of entries."""

    def __init__(self) -> None:
        self._waiting: dict[EntryId, asyncio.Future[int]] = {}

    def expect(self, entry_id: EntryId) -> asyncio.Future[int]:
        """Return the future of the first copy of an entry that has just got its id."""
        waiting = self._waiting.get(entry_id)
        if waiting is None:
            waiting = asyncio.get_running_loop().create_future()
            self._waiting[entry_id] = waiting
        return waiting

    @property
    def are_expected(self) -> bool:
        """Whether any future waits."""
        return bool(self._waiting)

    def note(self, first_entry_id: EntryId, last_entry_id: EntryId) -> None:
        """Record that a bookie stored a batch."""
        for number in range(first_entry_id, last_entry_id + 1):
            waiting = self._waiting.pop(EntryId(number), None)
            if waiting is not None and not waiting.done():
                waiting.set_result(number)

    def fail(self, error: LedgerError) -> None:
        """Fail every future that waits."""
        waiting, self._waiting = self._waiting, {}
        for entry_id, future in waiting.items():
            if not future.done():
                future.set_exception(error.for_entry(entry_id, "unknown"))
                future.exception()  # a failure that is not awaited is not logged
