"""Errors that end a writer, each with what was needed, what was seen and what to do.

Leaves the decision to end to `append.AppendProtocol`.

Source: protocol rules 4.7, 5.5, 6.2 and 11.4.
"""

from collections.abc import Sequence
from typing import Final

from bookie.wire.messages import Status
from ledger_client.errors import (
    EntryConflictError,
    LedgerError,
    LedgerFencedError,
    LedgerNotFoundError,
    NotEnoughBookiesError,
    NotEnoughInSyncReplicasError,
    TooManyFragmentsError,
    UnauthorizedError,
)
from ledger_client.protocol.append_events import ReplacementsMissing
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import FRAGMENTS_MAX, LedgerMetadata

REFUSING_BOOKIES_MAX: Final = 2
"""Number of bookies whose refusal of the same batch ends the writer: every bookie would
refuse it.
"""


def fenced(metadata: LedgerMetadata) -> LedgerFencedError:
    """Return the error of a writer whose ledger was taken over; pending entries may be in the
    ledger.
    """
    text = "another client fenced it to recover it: open the ledger to see where it ended"
    return LedgerFencedError(text, ledger_id=metadata.ledger_id)


def replaced(metadata: LedgerMetadata) -> LedgerNotFoundError:
    """Return the error of a writer whose metadata are gone although the ledger has some."""
    text = (
        "its metadata are not those that this writer stored: the metadata service was restored "
        "from a backup; recover the ledger and continue in a new one"
    )
    return LedgerNotFoundError(text, ledger_id=metadata.ledger_id, outcome="unknown")


def fenced_by_many(metadata: LedgerMetadata, bookie_ids: Sequence[BookieId]) -> LedgerError:
    """Return the error of a writer that met too many bookies that fence its ledger by mistake."""
    text = (
        f"{len(bookie_ids)} bookies fence it although no client recovers it, because they lost "
        f"data ({', '.join(bookie_ids)}): replace them, then write a new ledger (this one is "
        "closed at its last confirmed entry)"
    )
    return LedgerError(text, ledger_id=metadata.ledger_id, outcome="unknown")


def final_refusal(
    metadata: LedgerMetadata, bookie_id: BookieId, first: EntryId, status: Status
) -> LedgerError | None:
    """Return the error for a refusal that ends the writer; None if the refusal concerns only the
    bookie.
    """
    ledger_id = metadata.ledger_id
    match status:
        case Status.DELETED:
            text = "it was deleted while being written: continue in a new ledger"
            return LedgerNotFoundError(text, ledger_id=ledger_id, outcome="unknown")
        case Status.UNAUTHORIZED:
            text = (
                f"bookie {bookie_id} has this ledger with another password: continue in a new "
                "ledger, and check that the bookie belongs to this cluster"
            )
            return UnauthorizedError(text, ledger_id=ledger_id, outcome="unknown")
        case Status.CONFLICT:
            text = (
                f"bookie {bookie_id} stores other bytes at entry {first}, so two writers used the "
                "ledger: recover it, and continue in a new one"
            )
            return EntryConflictError(text, ledger_id=ledger_id, entry_id=first)
        case _:
            return None


def refused_by_many(metadata: LedgerMetadata, first: EntryId) -> LedgerError:
    """Return the error for a batch that several bookies refuse."""
    text = (
        f"{REFUSING_BOOKIES_MAX} bookies cannot store the batch at entry {first}: compare "
        "`entry_bytes_max` of this client with theirs"
    )
    return LedgerError(text, ledger_id=metadata.ledger_id, outcome="unknown")


def too_many_fragments(metadata: LedgerMetadata) -> TooManyFragmentsError:
    """Return the error of a ledger whose ensemble changed too often."""
    text = f"it has {FRAGMENTS_MAX} fragments, the maximum: continue in a new ledger"
    return TooManyFragmentsError(text, ledger_id=metadata.ledger_id, outcome="unknown")


def no_replacement(
    metadata: LedgerMetadata, gone: list[BookieId], event: ReplacementsMissing
) -> NotEnoughBookiesError:
    """Return the error of a writer whose bookies are gone and for which placement finds no others
    (rule 5.5).
    """
    excluded = ", ".join(f"{each}: {why}" for each, why in event.excluded.items())
    text = (
        f"no replacement for {', '.join(gone)}: {event.needed} more needed, {event.seen} bookies "
        f"can be used ({excluded}){event.why}: `quire cluster health` shows why a bookie is "
        "read-only; free its disk or start bookies, then write a new ledger (this one is closed at "
        "its last confirmed entry)"
    )
    return NotEnoughBookiesError(
        text,
        needed=event.needed,
        seen=event.seen,
        excluded={str(b): why for b, why in event.excluded.items()},
        ledger_id=metadata.ledger_id,
        outcome="unknown",
    )


def failed_inside(metadata: LedgerMetadata, error: Exception) -> LedgerError:
    """Return the error of a writer in which an exception left entries with ids and without
    bytes.
    """
    text = (
        f"an append failed inside the client ({type(error).__name__}: {error}): read the ledger to "
        "see which entries it has, and continue in a new one (this one is closed at its last "
        "confirmed entry)"
    )
    failed = LedgerError(text, ledger_id=metadata.ledger_id, outcome="unknown")
    failed.__cause__ = error
    return failed


def not_enough_in_sync(
    metadata: LedgerMetadata, in_sync: tuple[BookieId, ...]
) -> NotEnoughInSyncReplicasError:
    """Return the error of an append that is refused because too few members are in sync (11.4)."""
    needed = metadata.quorum.min_in_sync
    members = ", ".join(metadata.last_fragment.ensemble)
    text = (
        f"{needed} members must be in sync and {len(in_sync)} of {members} are: nothing was "
        "written; append again once members are back, or their replacements have caught up"
    )
    return NotEnoughInSyncReplicasError(text, ledger_id=metadata.ledger_id)


class RefusedBatches:
    """Counter of the bookies that refused the same batch. One bookie may have received damaged
    bytes; if several refuse, every other one will too.
    """

    def __init__(self) -> None:
        self._first: EntryId | None = None
        self._refusing: list[BookieId] = []

    def count(self, first: EntryId, bookie_id: BookieId) -> bool:
        """Count a refusal; return whether the limit is reached."""
        if self._first != first:
            self._first, self._refusing = first, []
        if bookie_id not in self._refusing:
            self._refusing.append(bookie_id)
        return len(self._refusing) >= REFUSING_BOOKIES_MAX
