"""Events of the writer of an open ledger, and the actions that it may decide.

Leaves the decisions to `append.AppendProtocol` and performing the actions to
`ledger_client.writing.append_shell`.

Invariant: none is changed after its creation. The classes used for every batch and every answer are
nevertheless not frozen: a frozen object takes three times as long to create.

Source: protocol sections 4-6.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from bookie.wire.messages import Status
from ledger_client.errors import LedgerError
from metadata.ids import BookieId, EntryId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata


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
    | MembersChanged
    | FailWriter
    | Closed
)
