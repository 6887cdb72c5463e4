"""Events that a recovery receives, and the actions that it decides.

Leaves the decisions to `recovery.py` and its three phases, and performing the actions to
`recoverer.py`.

Source: protocol section 7.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from bookie.wire.messages import Status
from metadata.ids import BookieId, EntryId, Version
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata


@dataclass(frozen=True, slots=True)
class MetadataRead:
    """The current metadata: at the start, after a lost compare-and-set, or on request."""

    metadata: LedgerMetadata
    version: Version


@dataclass(frozen=True, slots=True)
class MetadataStored:
    """This recovery's compare-and-set was applied."""

    metadata: LedgerMetadata
    version: Version


@dataclass(frozen=True, slots=True)
class LedgerGone:
    """The metadata does not exist, or no longer exists."""


@dataclass(frozen=True, slots=True)
class FenceAnswered:
    """A bookie answered the fencing LAC read."""

    bookie_id: BookieId
    status: Status
    lac: EntryId
    fenced: bool
    reason: str = ""
    """Text of a refusal, if there is one."""


@dataclass(frozen=True, slots=True)
class FenceFailed:
    """The fence request to a bookie failed."""

    bookie_id: BookieId
    reason: str


@dataclass(frozen=True, slots=True)
class FoundRun:
    """Consecutive entries that a bookie returned with valid digests.

    `length_before` is the ledger's bytes before the first of them; None if they came as a slice,
    whose header is not the writer's.
    """

    first_entry_id: EntryId
    lengths: tuple[int, ...]
    length_before: int | None

    @property
    def next_entry_id(self) -> EntryId:
        """The entry after the last one."""
        return EntryId(self.first_entry_id + len(self.lengths))


@dataclass(frozen=True, slots=True)
class RangeAnswered:
    """A bookie answered a read from `first_entry_id` on.

    The runs contain every entry from there up to `next_entry_id`; `status` is the answer for that
    entry (OK: none given; UNKNOWN also if its digest did not match).
    """

    bookie_id: BookieId
    first_entry_id: EntryId
    runs: tuple[FoundRun, ...]
    next_entry_id: EntryId
    status: Status
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RangeFailed:
    """A read request to a bookie failed: treated as UNKNOWN."""

    bookie_id: BookieId
    first_entry_id: EntryId
    reason: str


@dataclass(frozen=True, slots=True)
class LengthFound:
    """The ledger's bytes before the entry named in `FindLength`."""

    length: int


@dataclass(frozen=True, slots=True)
class LengthMissing:
    """No replica could return the length; `missing` says why, per bookie."""

    missing: Mapping[BookieId, str]


@dataclass(frozen=True, slots=True)
class SpanStored:
    """A bookie stored a written-back span."""

    bookie_id: BookieId
    first_entry_id: EntryId


@dataclass(frozen=True, slots=True)
class SpanRefused:
    """A bookie did not store a written-back span; `status` is None if it gave no answer."""

    bookie_id: BookieId
    first_entry_id: EntryId
    status: Status | None
    reason: str


@dataclass(frozen=True, slots=True)
class ReplacementsChosen:
    """The placement found a bookie for each failed position."""

    bookies: Mapping[int, BookieId]


@dataclass(frozen=True, slots=True)
class ReplacementsMissing:
    """The placement found too few bookies."""

    needed: int
    seen: int
    excluded: Mapping[BookieId, str]
    why: str = ""
    """What the numbers do not say; for the error's text."""


RecoveryEvent = (
    MetadataRead
    | MetadataStored
    | LedgerGone
    | FenceAnswered
    | FenceFailed
    | RangeAnswered
    | RangeFailed
    | LengthFound
    | LengthMissing
    | SpanStored
    | SpanRefused
    | ReplacementsChosen
    | ReplacementsMissing
)


@dataclass(frozen=True, slots=True)
class StoreInRecovery:
    """Compare-and-set `on` to IN_RECOVERY (rule 7.1)."""

    on: LedgerMetadata
    version: Version


@dataclass(frozen=True, slots=True)
class StoreClosed:
    """Compare-and-set `on` to CLOSED (rule 7.5): see `LedgerMetadata.with_recovered`."""

    on: LedgerMetadata
    version: Version
    recovered: tuple[Fragment, ...]
    last_entry_id: EntryId
    length: int


@dataclass(frozen=True, slots=True)
class ReadMetadata:
    """Read the current metadata before failing: another recovery may have ended."""


@dataclass(frozen=True, slots=True)
class Fence:
    """Send the fencing LAC read (rule 7.2)."""

    bookie_id: BookieId


@dataclass(frozen=True, slots=True)
class ReadRange:
    """Send a fencing read of entries (rule 7.3)."""

    bookie_id: BookieId
    first_entry_id: EntryId
    last_entry_id: EntryId


@dataclass(frozen=True, slots=True)
class FindLength:
    """Find the ledger's bytes before an entry, from a complete batch at or before it."""

    entry_id: EntryId


@dataclass(frozen=True, slots=True)
class Span:
    """Entries to write back as one batch."""

    first_entry_id: EntryId
    count: int
    length_before: int
    payload_bytes: int

    @property
    def next_entry_id(self) -> EntryId:
        """The entry after the last one."""
        return EntryId(self.first_entry_id + self.count)


@dataclass(frozen=True, slots=True)
class WriteBack:
    """Send found entries, as one batch, with an add that passes the fence (rule 7.4)."""

    bookie_id: BookieId
    span: Span
    lac: EntryId


@dataclass(frozen=True, slots=True)
class ChooseReplacements:
    """Request bookies from the placement for the failed positions, without those in `failed`."""

    ensemble: tuple[BookieId, ...]
    positions: tuple[int, ...]
    failed: Mapping[BookieId, str]


@dataclass(frozen=True, slots=True)
class ReleaseEntries:
    """Entries before this one are no longer needed."""

    before: EntryId


@dataclass(frozen=True, slots=True)
class Undecided:
    """Too few replicas answered to decide whether an entry exists, or too few fenced (rules 7.2,
    7.3); or the length before the end is not known (rule 7.5).
    """

    entry_id: EntryId | None
    needed: str
    missing: Mapping[BookieId, str] = field(default_factory=dict)
    is_last_fragment_empty: bool = False
    """Whether enough replicas never had the first entry of the last fragment: no entry of it was
    acknowledged.
    """


@dataclass(frozen=True, slots=True)
class PasswordRefused:
    """A bookie knows the ledger under another master key."""

    bookie_id: BookieId


@dataclass(frozen=True, slots=True)
class OtherBytesStored:
    """A bookie stores other bytes, with a valid digest, under an id that was read elsewhere."""

    bookie_id: BookieId
    entry_id: EntryId


@dataclass(frozen=True, slots=True)
class NoReplacement:
    """Some entry cannot reach its ack quorum, and no bookie can replace a failed one."""

    needed: int
    seen: int
    excluded: Mapping[BookieId, str]
    why: str = ""
    """What the numbers do not say; for the error's text."""


@dataclass(frozen=True, slots=True)
class FragmentsChanged:
    """The last fragment differs from the one that recovery read: no rule allows that."""


@dataclass(frozen=True, slots=True)
class Deleted:
    """The ledger is gone."""


RecoveryFailure = (
    Undecided | PasswordRefused | OtherBytesStored | NoReplacement | FragmentsChanged | Deleted
)


@dataclass(frozen=True, slots=True)
class Finish:
    """The ledger is CLOSED, by this recovery or by another client: recovery is done."""

    metadata: LedgerMetadata
    version: Version


@dataclass(frozen=True, slots=True)
class Fail:
    """Recovery failed; the ledger stays as stored."""

    failure: RecoveryFailure


RecoveryAction = (
    StoreInRecovery
    | StoreClosed
    | ReadMetadata
    | Fence
    | ReadRange
    | FindLength
    | WriteBack
    | ChooseReplacements
    | ReleaseEntries
    | Finish
    | Fail
)
