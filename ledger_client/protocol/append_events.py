"""Events of the writer of an open ledger, the actions that it may decide, and the errors that end
it, each with what was needed, what was seen and what to do.

Leaves the decisions to `append.AppendProtocol` and performing the actions to
`ledger_client.writing.append_shell`.

Invariant: none is changed after its creation. The classes used for every batch and every answer are
nevertheless not frozen: a frozen object takes three times as long to create.

Source: protocol sections 4-6; rule 11.4.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
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
from metadata.ids import BookieId, EntryId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import FRAGMENTS_MAX, Fragment, LedgerMetadata


class FailureKind(StrEnum):
    """Reason why a member of the ensemble must be replaced."""

    GONE = "gone"
    """It cannot or will not store entries: refused, lost, timed out, unregistered, read-only."""
    SUSPECTED = "suspected"
    """It is silent while others answer (rule 5.7). Cleared when there is no spare."""
    BACKLOG = "backlog"
    """It has too many unanswered bytes (rule 4.6). When there is no spare, its copies are dropped,
    and those of unconfirmed batches are sent again once it takes more.
    """
    LAGGING = "lagging"
    """It answers too late (rule 11.3). Cleared once it has stored what it owed."""
    FENCED = "fenced"
    """It answered FENCED: a read of the metadata shows whether a recovery caused it (rule 4.7)."""


@dataclass(slots=True)
class BatchAppended:
    """The caller appended entries; the shell keeps their bytes under the first id."""

    first_entry_id: EntryId
    count: int
    payload_bytes: int


@dataclass(slots=True)
class BatchStored:
    """A bookie answered that a batch is durable."""

    first_entry_id: EntryId
    bookie_id: BookieId


@dataclass(frozen=True, slots=True)
class StoreRefused:
    """A bookie answered that it did not store a batch."""

    first_entry_id: EntryId
    bookie_id: BookieId
    status: Status


@dataclass(frozen=True, slots=True)
class BookieFailed:
    """A bookie has failed, whatever the request was."""

    bookie_id: BookieId
    kind: FailureKind
    reason: str


@dataclass(frozen=True, slots=True)
class BookieReturned:
    """A failed member that could not be replaced answers again."""

    bookie_id: BookieId


@dataclass(frozen=True, slots=True)
class SpareJoined:
    """A bookie that may serve as a replacement has joined."""


@dataclass(frozen=True, slots=True)
class MembersProposed:
    """Answer to ProposeMembers: a token for storing the change."""

    token: UpdateToken


@dataclass(frozen=True, slots=True)
class MemberReady:
    """In-sync mode: a bookie that is not a member can become one that catches up (rule 11.3)."""

    bookie_id: BookieId
    token: UpdateToken


@dataclass(frozen=True, slots=True)
class MetadataSeen:
    """The older fragments of the stored ledger have changed, for example after a copy (rules 9.1,
    11.2).
    """

    metadata: LedgerMetadata
    version: Version


@dataclass(frozen=True, slots=True)
class ReplacementsChosen:
    """Placement's answer to ChooseReplacements: at least one position has a bookie."""

    replacements: Mapping[int, BookieId]
    token: UpdateToken


@dataclass(frozen=True, slots=True)
class ReplacementsMissing:
    """Placement's other answer to ChooseReplacements: no position can be filled (rule 5.5)."""

    needed: int
    seen: int
    excluded: Mapping[BookieId, str]
    why: str = ""
    """What the numbers do not say; for the error's text."""


@dataclass(frozen=True, slots=True)
class MetadataStored:
    """The requested compare-and-set was applied."""

    metadata: LedgerMetadata
    version: Version


@dataclass(frozen=True, slots=True)
class MetadataConflicted:
    """Metadata that a fresh read found: after a compare-and-set that was certainly not applied
    (rule 1.4), or for ReadMetadata.
    """

    metadata: LedgerMetadata
    version: Version


@dataclass(frozen=True, slots=True)
class MetadataRefused:
    """The metadata can never be stored, or read: the ledger was deleted, or the value would be too
    large.
    """

    error: LedgerError


@dataclass(frozen=True, slots=True)
class ChangeUnsent:
    """There is no connection to the metadata service, and nothing of the change that is under way
    was sent to it (rule 5.9).
    """


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """The caller closes the ledger or abandons pending appends: the ledger ends at its LAC (rule
    6.1).
    """

    token: UpdateToken


@dataclass(frozen=True, slots=True)
class WriterFailed:
    """A cause outside the protocol ended the writer, such as the deadline of an append."""

    error: LedgerError


AppendEvent = (
    BatchAppended
    | BatchStored
    | StoreRefused
    | BookieFailed
    | BookieReturned
    | SpareJoined
    | MembersProposed
    | MemberReady
    | MetadataSeen
    | ReplacementsChosen
    | ReplacementsMissing
    | MetadataStored
    | MetadataConflicted
    | MetadataRefused
    | ChangeUnsent
    | CloseRequested
    | WriterFailed
)


@dataclass(slots=True)
class SendBatch:
    """Send a batch, always with the same bytes, to these bookies."""

    first_entry_id: EntryId
    bookie_ids: tuple[BookieId, ...]


@dataclass(slots=True)
class Confirm:
    """Resolve, in order, every append up to the new LAC; `length` is the ledger's length up to
    there.
    """

    lac: EntryId
    length: int


@dataclass(slots=True)
class Settle:
    """No further copy of the entries up to here will be stored."""

    entry_id: EntryId


@dataclass(frozen=True, slots=True)
class RecordStretch:
    """These entries are confirmed but not on their complete write set: repair must copy
    them (6.3).
    """

    first_entry_id: EntryId
    last_entry_id: EntryId


@dataclass(frozen=True, slots=True)
class ChooseReplacements:
    """Request bookies from the placement for these positions."""

    ensemble: tuple[BookieId, ...]
    positions: tuple[int, ...]
    excluded: Mapping[BookieId, str]


@dataclass(frozen=True, slots=True)
class ProposeMembers:
    """Request a token for switching to these members, which may be fewer than before."""

    ensemble: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """Store by compare-and-set; the token decides an unknown outcome (rules 1.2-1.3)."""

    metadata: LedgerMetadata
    expected: Version


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the metadata, by a fresh read that begins now; repeat it until it succeeds. The answer
    is MetadataConflicted or MetadataRefused (rule 4.7).
    """


@dataclass(frozen=True, slots=True)
class DropChange:
    """Send nothing of the change that is under way: it is not needed any more (rule 5.9)."""


@dataclass(frozen=True, slots=True)
class MembersChanged:
    """A fragment is stored and has replaced the ensemble before it."""

    fragment: Fragment
    before: tuple[BookieId, ...]

    @property
    def replaced(self) -> tuple[BookieId, ...]:
        """Bookies that left, whether replaced or not (11.3)."""
        return tuple(b for b in self.before if b not in self.fragment.ensemble)

    @property
    def joined(self) -> tuple[BookieId, ...]:
        """Bookies that joined."""
        return tuple(b for b in self.fragment.ensemble if b not in self.before)


@dataclass(frozen=True, slots=True)
class FailWriter:
    """Fail all pending appends with this error; nothing is confirmed afterwards."""

    error: LedgerError


@dataclass(frozen=True, slots=True)
class Closed:
    """The ledger is closed with this metadata, by this writer or by another client."""

    metadata: LedgerMetadata


AppendAction = (
    SendBatch
    | Confirm
    | Settle
    | RecordStretch
    | ChooseReplacements
    | ProposeMembers
    | StoreMetadata
    | ReadMetadata
    | DropChange
    | MembersChanged
    | FailWriter
    | Closed
)


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
    excluded = ", ".join(f"{bookie}: {why}" for bookie, why in event.excluded.items())
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
