"""Answers of the source and the target of a copy: the ledger's length, errors, and refusals.

Leaves the requests to `ledger_client/copying.py`, the entries that are sent on to
`copy_piece.py`, and the metadata changes to `copy.py`.

Invariant: an answer of the target is correct only if its digests are valid and its bytes equal
those of the source.

Source: protocol rules 4.2, 4.3, 9.1.
"""

from bookie.wire.batch import BatchView
from bookie.wire.errors import BatchError
from bookie.wire.messages import Status
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    EntryConflictError,
    LedgerError,
    LedgerNotFoundError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from ledger_client.protocol.copy_piece import CopyPiece, parts_of, payloads_of
from ledger_client.reading.verified_entries import VerifiedEntries
from metadata.ids import BookieId, EntryId, LedgerId


def length_in_batch(batch: BatchView, entry_id: EntryId) -> int | None:
    """Return the ledger's bytes before an entry according to its batch; None if the batch is a
    slice, whose header is not the writer's.
    """
    header = batch.header
    if header.is_slice:
        return None
    return header.length_before + sum(batch.lengths[: entry_id - header.first_entry_id])


def copy_error(
    target: BookieId, piece: CopyPiece, entry_id: EntryId, good: VerifiedEntries, keys: LedgerKeys
) -> LedgerError | None:
    """Return the error in the target's answer for a piece, from an entry on; None if the answer is
    correct up to `good.next_entry_id` and not empty.
    """
    if good.next_entry_id == entry_id and not good.is_damaged:
        why = f"it stored entry {entry_id} and does not return it ({good.reason})"
        return _target_error(target, entry_id, why, keys.ledger_id)
    wrong = (
        good.reason if good.next_entry_id == entry_id else _difference(piece, entry_id, good, keys)
    )
    if wrong is None:
        return None
    why = f"it returned entry {entry_id}, or a later one, damaged right after storing it ({wrong})"
    return _target_error(target, entry_id, why, keys.ledger_id)


def refusal_error(
    ledger_id: LedgerId, target: BookieId, entry_id: EntryId, status: Status | None, reason: str
) -> LedgerError:
    """Return the error for a target that did not store or return an entry; without a status, it did
    not answer.
    """
    match status:
        case Status.UNAUTHORIZED:
            text = f"bookie {target} refused the password: copy with the correct one"
            return UnauthorizedError(text, ledger_id=ledger_id)
        case Status.DELETED:
            text = f"it was deleted, as bookie {target} reports: no copy is needed"
            return LedgerNotFoundError(text, ledger_id=ledger_id)
        case Status.CONFLICT:
            return EntryConflictError(
                f"from entry {entry_id} on, bookie {target} stores other bytes than were read "
                "elsewhere, with valid digests: it is not made a member; copy to another",
                ledger_id=ledger_id,
                entry_id=entry_id,
                outcome="not_written",
            )
        case _:
            why = reason if status is None else f"answered {status.name}"
            return _target_error(target, entry_id, why, ledger_id)


def _target_error(
    target: BookieId, entry_id: EntryId, why: str, ledger_id: LedgerId
) -> NotEnoughBookiesError:
    """Return the error for a target that cannot be used: another one may be."""
    return NotEnoughBookiesError(
        f"bookie {target} cannot store the copy of entry {entry_id} ({why}): it is not made a "
        "member; copy to another bookie, or try again later",
        needed=1,
        seen=0,
        excluded={str(target): why},
        ledger_id=ledger_id,
        entry_id=entry_id,
    )


def _difference(
    piece: CopyPiece, first: EntryId, good: VerifiedEntries, keys: LedgerKeys
) -> str | None:
    """Compare the answer with the bytes read at the source, and each digest with its entry."""
    try:
        for batch in good.batches:
            batch.verify_digests(keys.seed)
    except BatchError as error:
        return str(error)
    found = payloads_of(parts_of(good, first))
    is_same = found == piece.payloads_from(first)[: len(found)]
    return None if is_same else "other bytes than its source stores"
