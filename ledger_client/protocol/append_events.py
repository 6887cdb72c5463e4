"""Lists what can happen to the writer of an open ledger, and what it may decide to do.

Leaves the decisions to `append.AppendProtocol` and their performance to
`ledger_client.writing.writer`.

Invariant: none is changed once it is made. Those that come with every batch and every answer are
not frozen for all that: freezing makes making one take three times as long.

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
    """Why a member of the ensemble is to be replaced."""

    GONE = "gone"
    """It cannot or will not store: refused, lost, timed out, unregistered, read-only."""
    SUSPECTED = "suspected"
    """It is silent while others answer (rule 5.7): forgiven when there is no spare."""
    BACKLOG = "backlog"
    """Too many bytes are unanswered (rule 4.6): its copies are dropped when there is no spare."""
    LAGGING = "lagging"
    """It answers, and too late (rule 11.3): forgiven once it has stored what it owed."""


@dataclass(slots=True)
class BatchAppended:
    """The caller appended entries; the shell holds their bytes under the first id."""

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
    """A bookie cannot be relied on any more, whatever it was asked."""

    bookie_id: BookieId
    kind: FailureKind
    reason: str


@dataclass(frozen=True, slots=True)
class BookieReturned:
    """A member that had failed and could not be replaced answers again."""

    bookie_id: BookieId


@dataclass(frozen=True, slots=True)
class SpareJoined:
    """A bookie that may serve as a replacement appeared."""


@dataclass(frozen=True, slots=True)
class MembersProposed:
    """The answer to ProposeMembers: a token to store the change under."""

    token: UpdateToken


@dataclass(frozen=True, slots=True)
class MemberReady:
    """In-sync mode: a bookie that is no member can become one, as catching up (rule 11.3)."""

    bookie_id: BookieId
    token: UpdateToken


@dataclass(frozen=True, slots=True)
class MetadataSeen:
    """The ledger is stored with other older fragments, such as after a copy (rules 9.1, 11.2)."""

    metadata: LedgerMetadata
    version: Version


@dataclass(frozen=True, slots=True)
class ReplacementsChosen:
    """The placement's answer to ChooseReplacements: at least one position got a bookie."""

    replacements: Mapping[int, BookieId]
    token: UpdateToken


@dataclass(frozen=True, slots=True)
class NoReplacement:
    """The placement's other answer: not one position can be filled (rule 5.5)."""

    needed: int
    seen: int
    excluded: Mapping[BookieId, str]


@dataclass(frozen=True, slots=True)
class MetadataStored:
    """The compare-and-set asked for was applied."""

    metadata: LedgerMetadata
    version: Version


@dataclass(frozen=True, slots=True)
class MetadataConflicted:
    """The compare-and-set was certainly not applied: this is what is stored now (rule 1.4)."""

    metadata: LedgerMetadata
    version: Version


@dataclass(frozen=True, slots=True)
class MetadataRefused:
    """The metadata can never be stored: the ledger was deleted, or its value would be too large."""

    error: LedgerError


@dataclass(frozen=True, slots=True)
class CloseRequested:
    """The caller closes, or gives up on, what is pending: the ledger ends at its LAC (rule 6.1)."""

    token: UpdateToken


@dataclass(frozen=True, slots=True)
class WriterFailed:
    """Something outside the protocol ended the writer, such as the deadline of an append."""

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
    | NoReplacement
    | MetadataStored
    | MetadataConflicted
    | MetadataRefused
    | CloseRequested
    | WriterFailed
)


@dataclass(slots=True)
class SendBatch:
    """Send a batch, the same bytes always, to these bookies."""

    first_entry_id: EntryId
    bookie_ids: tuple[BookieId, ...]


@dataclass(slots=True)
class Confirm:
    """Resolve, in order, every append up to the new LAC; `length` is the ledger's up to there."""

    lac: EntryId
    length: int


@dataclass(slots=True)
class Settle:
    """Every copy that will ever be stored of the entries up to here has been answered for."""

    entry_id: EntryId


@dataclass(frozen=True, slots=True)
class RecordStretch:
    """These entries are confirmed but not on all of their write set: repair is to see to it
    (6.3).
    """

    first_entry_id: EntryId
    last_entry_id: EntryId


@dataclass(frozen=True, slots=True)
class ChooseReplacements:
    """Ask the placement for bookies in place of these positions."""

    ensemble: tuple[BookieId, ...]
    positions: tuple[int, ...]
    excluded: Mapping[BookieId, str]


@dataclass(frozen=True, slots=True)
class ProposeMembers:
    """Ask for a token with which to put these members, some fewer than before, in charge."""

    ensemble: tuple[BookieId, ...]


@dataclass(frozen=True, slots=True)
class StoreMetadata:
    """Store by compare-and-set, deciding an unknown outcome by the token (rules 1.2-1.3)."""

    metadata: LedgerMetadata
    expected: Version


@dataclass(frozen=True, slots=True)
class EnsembleChanged:
    """A fragment is stored and in charge, in place of the ensemble before it."""

    fragment: Fragment
    before: tuple[BookieId, ...]

    @property
    def replaced(self) -> tuple[BookieId, ...]:
        """Those that left, also without anybody in their place (11.3)."""
        return tuple(b for b in self.before if b not in self.fragment.ensemble)

    @property
    def joined(self) -> tuple[BookieId, ...]:
        """Those that are new."""
        return tuple(b for b in self.fragment.ensemble if b not in self.before)


@dataclass(frozen=True, slots=True)
class FailWriter:
    """Fail everything pending with this error; nothing is confirmed afterwards."""

    error: LedgerError


@dataclass(frozen=True, slots=True)
class Closed:
    """The ledger is closed at this metadata, by us or, equally, by another."""

    metadata: LedgerMetadata


AppendAction = (
    SendBatch
    | Confirm
    | Settle
    | RecordStretch
    | ChooseReplacements
    | ProposeMembers
    | StoreMetadata
    | EnsembleChanged
    | FailWriter
    | Closed
)
