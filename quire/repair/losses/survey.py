"""Questions to the bookies of a ledger: which entries each of them returns.

Leaves what follows to `quire.repair.losses.lost_ranges`.

Invariants: nothing is fenced and nothing is written. Only certain answers are recorded. A gap in
the list of a bookie's entries is certain if a read of its first entry says so too: a bookie in
limbo lists what is left, and answers UNKNOWN. An entry is damaged if the bookie lists it, does not
return it in DAMAGED_READS_MAX reads, and lists it after them too: one whose disk has failed refuses
both. A bookie that is marked as incoming is asked last: what it returns is unknown, not readable,
because it is not a member.

Source: protocol rules 2.4, 8.2 and 9.10.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bookie.wire.messages import ReadEntries, Status
from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys
from ledger_client.errors import UnauthorizedError
from ledger_client.reading.replica_reading import CALL_TIMEOUT_S, READ_BYTES, ReplicaReading
from ledger_client.reading.verified_entries import VerifiedEntries, verify_entries
from metadata.ids import BookieId, EntryId
from metadata.ledgers.copies import copies_of, ranges_by_bookie
from metadata.ledgers.entry_ranges import Range, common, merged, without
from metadata.ledgers.ledger_metadata import LedgerMetadata
from quire.repair.losses.lost_ranges import BookieAnswers, entries_to_find

DAMAGED_READS_MAX: Final = 3
"""Number of reads of a listed entry after which it counts as damaged."""
DAMAGED_PAUSE_S: Final = 0.5
"""Pause between these reads, one for all entries of a bookie."""
HAS_A_COPY: Final = "has a copy from a repair that did not end, and is not a member"
NO_LEDGER: Final = (Status.NO_SUCH_LEDGER, Status.DELETED)
NEGATIVES: Final = (Status.NO_SUCH_ENTRY, Status.NO_SUCH_LEDGER)


class LossSurvey:
    """Asks the bookies of one ledger."""

    def __init__(
        self, pool: BookiePool, keys: LedgerKeys, on_read: Callable[[int], None] = lambda _: None
    ) -> None:
        """`on_read` is called with the number of entries of each answer. The pool sends the key."""
        self._pool = pool
        self._keys = keys
        self._on_read = on_read

    async def ask_all(
        self, ledger: LedgerMetadata, gone: Mapping[BookieId, str]
    ) -> list[BookieAnswers]:
        """Ask each bookie of a closed ledger for the entries that no other one returned, then those
        that are marked as incoming. Bookies in `gone` are not asked. Raises UnauthorizedError.
        """
        assert ledger.last_entry_id is not None, "the ledger is closed"
        unread, answers = entries_to_find(ledger), list[BookieAnswers]()
        for bookie_id, expected in ranges_by_bookie(ledger, ledger.last_entry_id).items():
            found = BookieAnswers(bookie_id, expected, gone.get(bookie_id, ""))
            answers.append(found)
            if not found.gone:
                await self.ask(found, common(expected, unread))
                unread = without(unread, found.readable)
        for bookie_id, expected in _marked_ranges(ledger):
            found = BookieAnswers(bookie_id, common(expected, unread), gone.get(bookie_id, ""))
            answers.append(found)
            if not found.gone:
                await self.ask(found, found.expected)
            if found.readable:
                found.readable, found.failure = [], HAS_A_COPY
        return answers

    async def ask(self, found: BookieAnswers, wanted: Sequence[Range]) -> None:
        """Ask one bookie for some entries, and record its certain answers. Raises
        UnauthorizedError.
        """
        if not wanted:
            return
        reading = ReplicaReading(self._pool, found.bookie_id, self._keys)
        try:
            held = merged([each async for each in reading.stored_ranges()])
            left = await self._read(found, common(wanted, held))
            for _ in range(DAMAGED_READS_MAX - 1):
                if left:
                    await asyncio.sleep(DAMAGED_PAUSE_S)
                    left = await self._read(found, left)
            if left:
                found.damaged = common(left, [each async for each in reading.stored_ranges()])
            for first, last in without(wanted, held):
                if (await self._read_once(found, first, first)).status in NEGATIVES:
                    found.missing.append((first, last))
                else:
                    found.failure = "cannot say whether it has them (limbo)"
        except BookieCallError as error:
            self._require_authorized(error.status, found.bookie_id)
            found.failure = str(error)
            found.damaged.clear()
        finally:
            found.readable = merged(found.readable)
            found.damaged = merged(found.damaged)

    async def _read(self, found: BookieAnswers, listed: Sequence[Range]) -> list[Range]:
        """Read entries that the bookie lists; return those that may be damaged. Raises
        BookieCallError when it does not store the ledger any more.
        """
        left: list[Range] = []
        for first, last in listed:
            at = first
            while at <= last:
                answer = await self._read_once(found, at, last)
                if answer.next_entry_id > at:
                    found.readable.append((at, answer.next_entry_id - 1))
                    self._on_read(answer.next_entry_id - at)
                    at = answer.next_entry_id
                    continue
                if answer.status in NO_LEDGER:
                    why = f"listed entry {at}, and {answer.reason}"
                    raise BookieCallError(found.bookie_id, why, status=answer.status)
                if answer.status is Status.UNKNOWN:
                    left.append((at, at))
                else:
                    found.failure = f"lists entry {at}, and {answer.reason}"
                at += 1
        return merged(left)

    async def _read_once(self, found: BookieAnswers, first: int, last: int) -> VerifiedEntries:
        request = ReadEntries(
            self._keys.ledger_id, EntryId(first), EntryId(last), READ_BYTES, fence=False
        )
        answer = await self._pool.read_entries(found.bookie_id, request, timeout_s=CALL_TIMEOUT_S)
        self._require_authorized(answer.status, found.bookie_id)
        return verify_entries(answer, self._keys, EntryId(first), EntryId(last))

    def _require_authorized(self, status: Status | None, bookie_id: BookieId) -> None:
        if status is Status.UNAUTHORIZED:
            text = f"bookie {bookie_id} refused the password: search with the correct one"
            raise UnauthorizedError(text, ledger_id=self._keys.ledger_id)


def _marked_ranges(ledger: LedgerMetadata) -> list[tuple[BookieId, list[Range]]]:
    """Return the bookies that are marked as incoming, each with the entries of its fragment."""
    return [
        (bookie_id, copies.ranges)
        for fragment, copies in zip(ledger.fragments, copies_of(ledger), strict=True)
        for bookie_id in fragment.incoming
    ]
