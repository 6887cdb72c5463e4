"""Ends of a copy: the source reads and verifies, and the target stores and returns.

Leaves what is copied to its callers: a copy of a fragment (`copying.py`), and the repair of damaged
entries (`range_copy.py`).

Invariants: nothing is sent to a target before it was read with valid digests; a piece counts only
after the target has returned it with the source's bytes. Batches that come back as they were sent
cost one comparison of bytes; only others are taken apart.

Source: protocol rules 9.1, 9.12, 11.2.
"""

import asyncio

from bookie.wire.batch import BatchView
from bookie.wire.messages import ReadEntries, Status
from ledger_client.bookies.pool import BookieCallError, BookiePool, CallFailure
from ledger_client.config import ClientConfig
from ledger_client.digest import LedgerKeys
from ledger_client.errors import LedgerError
from ledger_client.protocol.copy_events import copy_error, length_in_batch, refusal_error
from ledger_client.protocol.copy_piece import CopyPiece
from ledger_client.reading.length_search import find_length_before
from ledger_client.reading.range_reader import RangeReader
from ledger_client.reading.verified_entries import verify_entries
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import QuorumSpec


class CopySource:
    """Reads entries in order, from any member that can return them."""

    def __init__(
        self, ranges: RangeReader, quorum: QuorumSpec, keys: LedgerKeys, config: ClientConfig
    ) -> None:
        self._ranges = ranges
        self._quorum = quorum
        self._keys = keys
        self._config = config
        self._next_entry_id = EntryId(0)
        self._length = 0  # the ledger's bytes before the next entry

    async def read(self, first: EntryId, last: EntryId) -> CopyPiece:
        """Return entries from `first` on, at most up to `last`."""
        try:
            answer = await self._ranges.read_verified(first, last, self._config.read_timeout_s)
            length = await self._length_before(first, answer.batches[0])
        except LedgerError as error:
            raise error.for_entry(first, "not_written") from error
        bytes_max = min(self._config.read_bytes_max, self._config.batch_bytes_max)
        piece = CopyPiece.of(answer, first, length, self._quorum, bytes_max, self._keys)
        self._next_entry_id = piece.next_entry_id
        self._length = length + piece.payload_bytes
        return piece

    async def _length_before(self, first: EntryId, batch: BatchView) -> int:
        """Return the ledger's bytes before an entry: a recovery may later request it from the
        target.
        """
        length = length_in_batch(batch, first)
        if length is not None:
            return length
        if first == self._next_entry_id:
            return self._length
        return await find_length_before(self._ranges, first, self._config.read_timeout_s)


class CopyTarget:
    """Stores pieces on the target; only entries that it then returns count."""

    def __init__(
        self, bookie_id: BookieId, keys: LedgerKeys, pool: BookiePool, config: ClientConfig
    ) -> None:
        self._bookie_id = bookie_id
        self._keys = keys
        self._pool = pool
        self._config = config

    async def store(self, piece: CopyPiece) -> CopyPiece:
        """Return the piece once the target has stored it and returned all of it."""
        keys = self._keys
        answers = _Answers([first for first, _ in piece.batches])
        for first, batch in piece.batches:
            self._pool.add(
                self._bookie_id, keys.ledger_id, batch, first, recovery=True, sink=answers
            )
        for first, status, reason in await answers.wait():
            if status is not Status.OK:
                raise self._refusal(first, status, reason)
        position = piece.first_entry_id
        while position < piece.next_entry_id:
            position = await self._check(piece, position)
        return piece

    async def _check(self, piece: CopyPiece, first: EntryId) -> EntryId:
        """Read back from an entry on and compare; return the entry after the correct ones."""
        config, keys = self._config, self._keys
        last = EntryId(piece.next_entry_id - 1)
        request = ReadEntries(keys.ledger_id, first, last, config.read_bytes_max, fence=False)
        try:
            answer = await self._pool.read_entries(
                self._bookie_id, request, timeout_s=config.read_timeout_s
            )
        except BookieCallError as error:
            raise self._refusal(first, error.status, error.reason) from error
        same_to = piece.same_to(answer, first)
        if same_to > first:
            return same_to
        good = verify_entries(answer, keys, first, last)  # other batches, or damage
        wrong = copy_error(self._bookie_id, piece, first, good, keys)
        if wrong is not None:
            raise wrong
        return good.next_entry_id

    def _refusal(self, first: EntryId, status: Status | None, reason: str) -> LedgerError:
        error = refusal_error(self._keys.ledger_id, self._bookie_id, first, status, reason)
        return self._pool.refusals.explained(error)


class _Answers:
    """Outcomes of a piece's adds. An `AddSink` of the pool."""

    def __init__(self, first_entry_ids: list[EntryId]) -> None:
        loop = asyncio.get_running_loop()
        self._outcomes: dict[EntryId, asyncio.Future[tuple[EntryId, Status | None, str]]] = {
            first: loop.create_future() for first in first_entry_ids
        }

    async def wait(self) -> list[tuple[EntryId, Status | None, str]]:
        """Return (first entry id, status, reason) of each; the pool guarantees that all come."""
        return await asyncio.gather(*self._outcomes.values())

    def on_add_answered(
        self, _bookie_id: BookieId, first_entry_id: EntryId, status: Status
    ) -> None:
        """Receive the target's answer."""
        self._settle(first_entry_id, status, "it refused")

    def on_add_failed(
        self, _bookie_id: BookieId, first_entry_id: EntryId, failure: CallFailure, reason: str
    ) -> None:
        """Receive the report that no answer will come."""
        self._settle(first_entry_id, None, f"{failure.value}: {reason}")

    def _settle(self, first: EntryId, status: Status | None, reason: str) -> None:
        if not self._outcomes[first].done():  # otherwise nothing waits any more
            self._outcomes[first].set_result((first, status, reason))
