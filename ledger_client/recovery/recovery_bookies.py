"""Requests of a recovery to bookies: with the ledger's key, or without one.

Leaves the connections to `ledger_client.bookies.pool`, and the decisions to `protocol/recovery.py`.

A ledger whose writer ended before its first entry was stored has no key on any bookie. Repair does
not know its password, so it recovers such a ledger with requests that carry no key. A bookie that
knows a key refuses them.

Invariants: without a key nothing is read or written, and no bookie is bound to a key; only the
answer of a durable fence is used as a negative; entries that are stored without a key are UNKNOWN.

Source: protocol rules 7.2-7.4 and 9.14.
"""

from typing import Protocol

from bookie.wire.batch import Buffer
from bookie.wire.entries import Entries
from bookie.wire.messages import FenceWithoutKey, LacReply, ReadEntries, ReadLac, Status
from ledger_client.bookies.connection_calls import AddSink, BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.bookies.refusals import Refusals
from ledger_client.reading.range_reader import EntryReads
from metadata.ids import BookieId, EntryId, LedgerId


class RecoveryBookies(EntryReads, Protocol):
    """Bookies, as a recovery uses them. `BookiePool` has these methods."""

    def attach(self, ledger_id: LedgerId, master_key: bytes) -> None:
        """Send this key to each bookie at which the ledger is used, until `detach`."""

    def detach(self, ledger_id: LedgerId) -> None:
        """Undo one `attach`."""

    async def read_lac(
        self, bookie_id: BookieId, request: ReadLac, *, timeout_s: float
    ) -> LacReply:
        """Fence the ledger, and return its LAC. Raises BookieCallError."""

    def add(
        self,
        bookie_id: BookieId,
        ledger_id: LedgerId,
        batch: Buffer,
        first_entry_id: EntryId,
        *,
        recovery: bool,
        sink: AddSink,
    ) -> None:
        """Send one batch; see `BookiePool.add`."""


class KeylessBookies:
    """`RecoveryBookies` for a ledger of which no bookie is known to know the key."""

    def __init__(self, pool: BookiePool) -> None:
        """`pool` has the credentials of repair."""
        self._pool = pool

    @property
    def refusals(self) -> Refusals:
        """Reasons of refusals, for errors."""
        return self._pool.refusals

    def attach(self, ledger_id: LedgerId, master_key: bytes) -> None:
        """Do nothing: there is no key to send."""

    def detach(self, ledger_id: LedgerId) -> None:
        """Do nothing."""

    async def read_lac(
        self, bookie_id: BookieId, request: ReadLac, *, timeout_s: float
    ) -> LacReply:
        """Fence the ledger without a key. Raises BookieCallError."""
        assert request.fence, "a recovery fences"
        return await self._fence(bookie_id, request.ledger_id, timeout_s)

    async def read_entries(
        self, bookie_id: BookieId, request: ReadEntries, *, timeout_s: float
    ) -> Entries:
        """Fence the ledger without a key; the answer is that for entry 0. Raises BookieCallError,
        also for other entries, and if entry 0 may be stored.
        """
        first = request.first_entry_id
        if first != 0:
            why = f"entry {first} cannot be read without the ledger's key"
            raise BookieCallError(bookie_id, why, status=Status.UNKNOWN)
        reply = await self._fence(bookie_id, request.ledger_id, timeout_s)
        if reply.status is Status.OK:
            why = "its entries cannot be read without the ledger's key"
            raise BookieCallError(bookie_id, why, status=Status.UNKNOWN)
        return Entries(reply.status, reply.lac, first, ())

    def add(
        self,
        bookie_id: BookieId,
        ledger_id: LedgerId,
        batch: Buffer,
        first_entry_id: EntryId,
        *,
        recovery: bool,
        sink: AddSink,
    ) -> None:
        """Never called: nothing is read, so nothing is written back."""
        raise AssertionError("an entry was read without a key")

    async def _fence(self, bookie_id: BookieId, ledger_id: LedgerId, timeout_s: float) -> LacReply:
        request = FenceWithoutKey(ledger_id)
        return await self._pool.fence_without_key(bookie_id, request, timeout_s=timeout_s)
