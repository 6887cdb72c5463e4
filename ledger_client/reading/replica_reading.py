"""One bookie's copies of a ledger's entries, listed and read directly from that bookie.

Leaves choosing bookies and judging missing entries to `ledger_client.reading.verification` and
`ledger_client.reading.replica_comparison`.

Invariants: nothing is fenced and nothing is written; a digest is only returned after it was checked
against its entry; memory is bounded by one answer. Source: protocol rules 3.2 and 9.4.
"""

from collections.abc import AsyncGenerator
from enum import Enum
from typing import Final, NamedTuple

from bookie.wire.batch import BatchView
from bookie.wire.errors import BatchError
from bookie.wire.messages import ListEntries, ReadEntries, Status
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys, verify
from metadata.ids import BookieId, EntryId
from metadata.ledgers.entry_ranges import Range

READ_BYTES: Final = 4 * 1024 * 1024
CALL_TIMEOUT_S: Final = 15.0


class ReadOutcome(Enum):
    """Outcome of reading entries."""

    READ = "read"
    MISSING = "missing"
    """The bookie answers that it does not hold them."""
    BAD = "bad"
    """They are damaged, or the bookie cannot decide whether it holds them."""


class ReplicaPiece(NamedTuple):
    """Consecutive entries with one outcome; `digests` has one digest for each entry that
    was read.
    """

    first: int
    last: int
    outcome: ReadOutcome
    digests: tuple[int, ...]


class ReplicaReading:
    """One bookie's copies of one ledger; the pool sends the ledger's key."""

    def __init__(self, pool: BookiePool, bookie_id: BookieId, keys: LedgerKeys) -> None:
        self.bookie_id = bookie_id
        self._pool = pool
        self._keys = keys

    async def stored_ranges(self) -> AsyncGenerator[Range, None]:
        """Yield the ranges that the bookie lists, ascending. Raises BookieCallError."""
        at = 0
        while True:
            request = ListEntries(self._keys.ledger_id, EntryId(at))
            answer = await self._pool.list_entries(
                self.bookie_id, request, timeout_s=CALL_TIMEOUT_S
            )
            if answer.status in (Status.NO_SUCH_LEDGER, Status.NO_SUCH_ENTRY):
                return
            if answer.status is not Status.OK:
                why = "it cannot list its entries"
                raise BookieCallError(self.bookie_id, why, status=answer.status)
            for found in answer.ranges:
                yield found
            if answer.complete or not answer.ranges:
                return
            at = answer.ranges[-1][1] + 1

    async def read(self, first: int, last: int) -> AsyncGenerator[ReplicaPiece, None]:
        """Yield pieces that cover first..last in order. Raises BookieCallError."""
        at = first
        while at <= last:
            request = ReadEntries(
                self._keys.ledger_id, EntryId(at), EntryId(last), READ_BYTES, fence=False
            )
            answer = await self._pool.read_entries(
                self.bookie_id, request, timeout_s=CALL_TIMEOUT_S
            )
            end = min(answer.next_entry_id, last + 1)
            for piece in self._check(answer.batches, at, end):
                yield piece
            has_moved, at = end > at, max(at, end)
            if has_moved and answer.status is Status.OK:
                continue
            if at <= last:  # this entry cannot be read; later ones may be readable
                gone = answer.status in (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)
                yield ReplicaPiece(at, at, ReadOutcome.MISSING if gone else ReadOutcome.BAD, ())
                at += 1

    def _check(self, batches: tuple[BatchView, ...], first: int, end: int) -> list[ReplicaPiece]:
        """Check the batches, which must contain the entries from `first` to below `end`."""
        pieces: list[ReplicaPiece] = []
        at = first
        for batch in batches:
            begins, ends = batch.header.first_entry_id, batch.header.last_entry_id
            if not begins <= at <= ends:
                break
            last = min(ends, end - 1)
            try:
                verify(batch, self._keys)
                batch.verify_digests(self._keys.seed)
            except BatchError:
                pieces.append(ReplicaPiece(at, last, ReadOutcome.BAD, ()))
            else:
                digests = batch.digests[at - begins : last + 1 - begins]
                pieces.append(ReplicaPiece(at, last, ReadOutcome.READ, digests))
            at = last + 1
        if at < end:
            pieces.append(ReplicaPiece(at, end - 1, ReadOutcome.BAD, ()))
        return pieces
