"""Check of a bookie's answer to a read: its valid entries, and where they end.

Leaves trying another replica to the protocols.

Invariants: the result contains verified entries of the right ledger, in order and without gaps,
from the first requested one on; a batch that is damaged, misplaced or of another ledger ends the
result there, as UNKNOWN.

Source: protocol rules 7.3 and 8.2; `bookie.wire.codec`.
"""

from dataclasses import dataclass

from bookie.wire.batch import BatchView
from bookie.wire.codec import Entries
from bookie.wire.errors import BatchError
from bookie.wire.messages import Status
from ledger_client.digest import LedgerKeys, verify
from metadata.ids import BookieId, EntryId


@dataclass(frozen=True, slots=True)
class VerifiedEntries:
    """The valid part of an answer; `status` is the answer for `next_entry_id`."""

    batches: tuple[BatchView, ...]
    next_entry_id: EntryId
    status: Status
    reason: str
    lac: EntryId
    is_damaged: bool = False
    """The entry arrived but failed its digest."""
    bookie_id: BookieId | None = None
    """The bookie that answered; None if the caller did not name it."""


def verify_entries(
    answer: Entries,
    keys: LedgerKeys,
    first_entry_id: EntryId,
    last_entry_id: EntryId,
    bookie_id: BookieId | None = None,
) -> VerifiedEntries:
    """Check an answer to a read of first..last, of this bookie."""
    expected = first_entry_id
    good: list[BatchView] = []
    for batch in answer.batches:
        try:
            _check_place(batch, expected, is_first=not good)
            verify(batch, keys)
        except BatchError as error:
            status, why = Status.UNKNOWN, str(error)
            is_damaged = True
            return VerifiedEntries(
                tuple(good), expected, status, why, answer.lac, is_damaged, bookie_id
            )
        good.append(batch)
        expected = EntryId(batch.header.last_entry_id + 1)
    following = EntryId(min(expected, last_entry_id + 1))
    status, reason = answer.status, f"answered {answer.status.name}"
    if status is Status.OK and following <= last_entry_id and not good:
        status, reason = Status.UNKNOWN, "answered nothing"
    if status is not Status.OK and following > last_entry_id:
        status = Status.OK  # the status is for an entry that was not requested
    if status is not Status.OK and answer.next_entry_id != following:
        status, reason = Status.UNKNOWN, f"answered of entry {answer.next_entry_id} instead"
    return VerifiedEntries(tuple(good), following, status, reason, answer.lac, bookie_id=bookie_id)


def _check_place(batch: BatchView, expected: EntryId, *, is_first: bool) -> None:
    header = batch.header
    starts_well = header.first_entry_id == expected or (
        is_first and header.first_entry_id < expected <= header.last_entry_id
    )
    if not starts_well:
        raise BatchError(f"{batch.describe()}: expected entry {expected}")
