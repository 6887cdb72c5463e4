"""Tells what the source and the target of a copy have said: entries to send on, stored, or refused.

Leaves asking them to `ledger_client/in_sync/copying.py`, and what is stored of it to `copy.py`.

Invariants: entries keep their bytes and digests, whatever batches they come and go in; what the
target returns is right only if its digests are and its bytes are those that the source returned.

Source: protocol rules 4.2, 4.3, 9.1.
"""

from dataclasses import dataclass

from bookie.wire.batch import BatchView, Buffer, build_batch
from bookie.wire.errors import BatchError
from bookie.wire.messages import Status
from ledger_client.batches import EntryBatch
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    DigestMismatchError,
    EntryConflictError,
    EntryNotFoundError,
    LedgerError,
    LedgerNotFoundError,
    NotEnoughBookiesError,
    UnauthorizedError,
)
from ledger_client.protocol.cutting import cut_batches
from ledger_client.reading.verified_entries import VerifiedEntries
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.ledger_metadata import QuorumSpec


@dataclass(frozen=True, slots=True)
class Piece:
    """Consecutive entries as they were read, and the batches that they are stored in."""

    first_entry_id: EntryId
    payloads: list[bytes]
    batches: list[tuple[EntryId, Buffer]]
    """With their first entry ids."""

    @classmethod
    def of(
        cls,
        answer: VerifiedEntries,
        first_entry_id: EntryId,
        length_before: int,
        quorum: QuorumSpec,
        bytes_max: int,
        keys: LedgerKeys,
    ) -> "Piece":
        """Return what a source returned from an entry on. The batches say that all before them is
        confirmed: it was when the next fragment began.
        """
        payloads = _payloads(answer, first_entry_id)
        batches: list[tuple[EntryId, Buffer]] = []
        lengths = [len(payload) for payload in payloads]
        for first, count in cut_batches(quorum, first_entry_id, lengths, bytes_max):
            skip = first - first_entry_id
            part = payloads[skip : skip + count]
            lac = EntryId(first - 1)
            batch = build_batch(
                keys.ledger_id, first, lac, length_before, part, keys.seed, keys.mac_key
            )
            batches.append((first, batch))
            length_before += sum(lengths[skip : skip + count])
        return cls(first_entry_id, payloads, batches)

    @property
    def next_entry_id(self) -> EntryId:
        """The entry behind the last one."""
        return EntryId(self.first_entry_id + len(self.payloads))

    @property
    def payload_bytes(self) -> int:
        """Bytes of all entries together."""
        return sum(map(len, self.payloads))

    @property
    def batch_bytes(self) -> int:
        """Bytes that are sent to the target."""
        return sum(len(batch) for _, batch in self.batches)


def length_told(batch: BatchView, entry_id: EntryId) -> int | None:
    """Return the ledger's bytes before an entry as its batch tells; None if that is a slice, whose
    word on it is not the writer's.
    """
    header = batch.header
    if header.is_slice:
        return None
    return header.length_before + sum(batch.lengths[: entry_id - header.first_entry_id])


def copy_error(
    target: BookieId, piece: Piece, entry_id: EntryId, good: VerifiedEntries, keys: LedgerKeys
) -> LedgerError | None:
    """Return what is wrong with what the target returned of a piece, from an entry on; None if it
    is right up to `good.next_entry_id`, and there is some.
    """
    if good.next_entry_id == entry_id and not good.is_damaged:
        return EntryNotFoundError(
            f"bookie {target} stored entry {entry_id} and does not return it ({good.reason}): it "
            "is not made a member; copy to another",
            ledger_id=keys.ledger_id,
            entry_id=entry_id,
        )
    why = (
        good.reason if good.next_entry_id == entry_id else _difference(piece, entry_id, good, keys)
    )
    if why is None:
        return None
    return DigestMismatchError(
        f"bookie {target} returns entry {entry_id}, or one behind it, damaged right after storing "
        f"it ({why}): it is not made a member; check its disk, and copy to another",
        ledger_id=keys.ledger_id,
        entry_id=entry_id,
    )


def refusal_error(
    ledger_id: LedgerId, target: BookieId, entry_id: EntryId, status: Status | None, reason: str
) -> LedgerError:
    """Return what it means that the target did not store or return an entry; without a status it
    did not answer.
    """
    match status:
        case Status.UNAUTHORIZED:
            text = f"bookie {target} refused the password: copy with the right one"
            return UnauthorizedError(text, ledger_id=ledger_id)
        case Status.DELETED:
            text = f"bookie {target} says that it was deleted"
            return LedgerNotFoundError(text, ledger_id=ledger_id)
        case Status.CONFLICT:
            return EntryConflictError(
                f"bookie {target} holds other bytes from entry {entry_id} on than were read "
                "elsewhere, with right digests: it is not made a member; copy to another",
                ledger_id=ledger_id,
                entry_id=entry_id,
                outcome="not_written",
            )
        case _:
            why = reason if status is None else f"answered {status.name}"
            return NotEnoughBookiesError(
                f"bookie {target} cannot take the copy of entry {entry_id} ({why}): copy to "
                "another, or to it once it can",
                needed=1,
                seen=0,
                excluded={str(target): why},
                ledger_id=ledger_id,
                entry_id=entry_id,
            )


def _difference(
    piece: Piece, first: EntryId, good: VerifiedEntries, keys: LedgerKeys
) -> str | None:
    """Compare with what was read at the source, and each digest with what it is of."""
    try:
        for batch in good.batches:
            batch.verify_digests(keys.seed)
    except BatchError as error:
        return str(error)
    found = _payloads(good, first)
    skip = first - piece.first_entry_id
    is_same = found == piece.payloads[skip : skip + len(found)]
    return None if is_same else "other bytes than its source has"


def _payloads(answer: VerifiedEntries, first: EntryId) -> list[bytes]:
    """Return the entries from the first on, in order; keyed batches come whole and hold others."""
    last = EntryId(answer.next_entry_id - 1)
    return [
        entry.data
        for batch in answer.batches
        for entry in EntryBatch(
            batch,
            max(first, batch.header.first_entry_id),
            min(last, batch.header.last_entry_id),
        )
    ]
