"""Recovery protocol: decisions of the recovery of one ledger, from its takeover to its close.

Leaves reading and writing back to their phases (`recovery_read.py`, `recovery_write.py`), and
performing the actions to `recoverer.py`.

Invariants: nothing is read before enough bookies have fenced; reading is against the last fragment
as it was when recovery started; metadata is stored twice, at the beginning and at the close, each
time by compare-and-set on the version read; before it fails, the metadata is read once more,
because another recovery may have ended.

Source: protocol section 7; rules 3.2 and 11.5.
"""

from dataclasses import dataclass, field, replace
from enum import Enum, auto
from typing import Final

from bookie.wire.messages import KNOWN, Status
from ledger_client.protocol import recovery_events as e
from ledger_client.protocol.recovery_events import (
    Fence,
    FenceAnswered,
    FenceFailed,
    RecoveryAction,
    RecoveryEvent,
    Undecided,
)
from ledger_client.protocol.recovery_read import Ended, ReadPhase
from ledger_client.protocol.recovery_write import WriteBackPhase
from metadata.ids import BookieId, EntryId, Version
from metadata.ledgers.copies import covers
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState, QuorumSpec


class FencePhase:
    """Answers to the fencing LAC reads of one fragment: when enough bookies have fenced, and where
    reading starts.

    A bookie counts only if its answer says that the ledger is fenced; a negative counts as well as
    a LAC; an unsure answer never counts. In in-sync mode one member would be sufficient. Recovery
    nevertheless waits for all members that can be reached, because it is better to keep an entry
    that one of them holds than to cut it off. Each request has a separate time limit.
    """

    __slots__ = ("_fragment", "_lac", "_quorum", "_unknown", "_waiting", "known_positions")

    def __init__(self, quorum: QuorumSpec, fragment: Fragment) -> None:
        self._quorum = quorum
        self._fragment = fragment
        self._waiting: dict[BookieId, int] = {b: p for p, b in enumerate(fragment.ensemble)}
        self._unknown: dict[BookieId, str] = {}
        self._lac = EntryId(fragment.first_entry_id - 1)
        self.known_positions: list[int] = []

    def requests(self) -> list[Fence]:
        """Return one request to each bookie of the fragment."""
        return [Fence(bookie_id) for bookie_id in self._fragment.ensemble]

    def answered(self, event: FenceAnswered) -> None:
        """Count an answer; repeated answers change nothing."""
        if event.bookie_id not in self._waiting:
            return
        if event.status not in KNOWN:
            why = event.reason or f"answered {event.status.name}"
            self._note_missing(event.bookie_id, why)
        elif not event.fenced:
            self._note_missing(event.bookie_id, "did not fence")
        else:
            self.known_positions.append(self._waiting.pop(event.bookie_id))
            self._lac = max(self._lac, event.lac)

    def failed(self, event: FenceFailed) -> None:
        """Record a bookie that could not be reached."""
        if event.bookie_id in self._waiting:
            self._note_missing(event.bookie_id, event.reason)

    @property
    def is_covered(self) -> bool:
        """Return whether no ack quorum can form any more without a bookie that has fenced."""
        if self._quorum.is_in_sync and self._waiting:
            return False
        return self.is_sufficient

    @property
    def is_sufficient(self) -> bool:
        """Return whether the fenced bookies are sufficient if no other could be reached."""
        return covers(self._quorum, self.known_positions)

    @property
    def fenced_fragment(self) -> Fragment:
        """The fragment with only the bookies that have fenced. In in-sync mode each of them holds
        every committed entry, so recovery needs to read from no other.
        """
        members = tuple(self._fragment.ensemble[p] for p in sorted(self.known_positions))
        return replace(self._fragment, ensemble=members)

    @property
    def start_entry_id(self) -> EntryId:
        """The first undecided entry: everything before it was confirmed (rule 7.3)."""
        return EntryId(self._lac + 1)

    def verdict(self) -> Undecided | None:
        """Return the failure once every bookie has answered or failed and the fences are not
        sufficient.
        """
        if self._waiting or self.is_covered:
            return None
        quorum = self._quorum
        needed = (
            f"fences at {quorum.write_quorum - quorum.ack_quorum + 1} of every "
            f"{quorum.write_quorum} neighbours in the last ensemble"
        )
        return Undecided(None, needed, dict(self._unknown))

    def _note_missing(self, bookie_id: BookieId, reason: str) -> None:
        del self._waiting[bookie_id]
        self._unknown[bookie_id] = reason


PENDING_BYTES_MAX: Final = 32 * 1024 * 1024
"""Maximum number of bytes being written back with which further chunks are opened."""


class _Stage(Enum):
    STARTING = auto()
    FENCING = auto()
    RECOVERING = auto()
    CLOSING = auto()
    GIVING_UP = auto()
    DONE = auto()


@dataclass(slots=True, eq=False)
class RecoveryProtocol:
    """Recovery of one ledger (rules 7.1-7.6). Performs nothing; the first event is MetadataRead."""

    _stage: _Stage = _Stage.STARTING
    _metadata: LedgerMetadata | None = None
    """The metadata as recovery started; while starting, as last read."""
    _version: Version = field(default=Version(-1))
    _fencing: FencePhase | None = None
    _reading: ReadPhase | None = None
    _writing: WriteBackPhase | None = None
    """None until the length before the first read entry is known."""
    _is_length_asked: bool = False
    _failure: e.RecoveryFailure | None = None

    def handle(self, event: RecoveryEvent) -> list[RecoveryAction]:
        """Advance by one event; the caller performs the returned actions in order."""
        if self._stage is _Stage.DONE:
            return []
        match event:
            case e.MetadataRead(metadata, version):
                return self._on_metadata(metadata, version)
            case e.MetadataStored(metadata, version):
                return self._on_stored(metadata, version)
            case e.LedgerGone():
                return self._fail(e.Deleted())
            case e.FenceAnswered() | e.FenceFailed():
                return self._on_fence(event)
            case _ if self._stage is _Stage.RECOVERING:
                return self._while_recovering(event)
            case _:
                return []  # late answers: the end is found, or recovery has failed

    @property
    def _reader(self) -> ReadPhase:
        assert self._reading is not None
        return self._reading

    def _while_recovering(self, event: RecoveryEvent) -> list[RecoveryAction]:
        match event:
            case e.RangeAnswered() | e.RangeFailed():
                return self._on_range(event)
            case e.LengthFound(length):
                self._begin_writing(length)
                return self._continue()
            case e.LengthMissing(missing):
                last_confirmed = EntryId(self._reader.start - 1)
                what = "the ledger's length up to this entry"
                is_empty = self._is_last_fragment_empty()
                return self._give_up(e.Undecided(last_confirmed, what, missing, is_empty))
            case e.SpanStored() | e.SpanRefused():
                return self._on_write(event)
            case e.ReplacementsChosen() | e.ReplacementsMissing():
                return self._on_write(event)
            case _:
                return []

    def _on_metadata(self, metadata: LedgerMetadata, version: Version) -> list[RecoveryAction]:
        if metadata.state is LedgerState.CLOSED:
            return self._finish(metadata, version)
        match self._stage:
            case _Stage.STARTING if metadata.state is LedgerState.OPEN:
                self._metadata, self._version = metadata, version
                return [e.StoreInRecovery(metadata, version)]
            case _Stage.STARTING:
                return self._begin_fencing(metadata, version)
            case _Stage.CLOSING:
                return self._close_on(metadata, version)
            case _Stage.GIVING_UP:
                assert self._failure is not None
                return self._fail(self._failure)
            case _:
                return []

    def _on_stored(self, metadata: LedgerMetadata, version: Version) -> list[RecoveryAction]:
        if self._stage is _Stage.STARTING:
            return self._begin_fencing(metadata, version)
        assert self._stage is _Stage.CLOSING
        return self._finish(metadata, version)

    @property
    def has_sufficient_fences(self) -> bool:
        """Whether the fences received so far are sufficient (rule 11.5)."""
        return self._fencing is not None and self._fencing.is_sufficient

    def _begin_fencing(self, metadata: LedgerMetadata, version: Version) -> list[RecoveryAction]:
        self._stage = _Stage.FENCING
        self._metadata, self._version = metadata, version
        last = metadata.last_fragment
        self._fencing = FencePhase(metadata.quorum_of(last), last)
        return list(self._fencing.requests())

    def _on_fence(self, event: e.FenceAnswered | e.FenceFailed) -> list[RecoveryAction]:
        if self._stage is not _Stage.FENCING:
            return []  # the start is final, and with it the LAC sent with write-backs
        if isinstance(event, e.FenceAnswered) and event.status is Status.UNAUTHORIZED:
            return self._fail(e.PasswordRefused(event.bookie_id))
        assert self._fencing is not None
        assert self._metadata is not None
        if isinstance(event, e.FenceAnswered):
            self._fencing.answered(event)
        else:
            self._fencing.failed(event)
        if self._fencing.is_covered:
            self._stage = _Stage.RECOVERING
            metadata = self._metadata
            in_sync = metadata.quorum.is_in_sync
            fragment = self._fencing.fenced_fragment if in_sync else metadata.last_fragment
            quorum = metadata.quorum_of(fragment)
            self._reading = ReadPhase(quorum, fragment, self._fencing.start_entry_id)
            return list(self._reading.requests())
        failure = self._fencing.verdict()
        return self._give_up(failure) if failure else []

    def _on_range(self, event: e.RangeAnswered | e.RangeFailed) -> list[RecoveryAction]:
        if isinstance(event, e.RangeFailed):
            return list(self._reader.failed(event)) + self._continue()
        if event.status is Status.UNAUTHORIZED:
            return self._fail(e.PasswordRefused(event.bookie_id))
        return list(self._reader.answered(event)) + self._continue()

    def _on_write(
        self,
        event: e.SpanStored | e.SpanRefused | e.ReplacementsChosen | e.ReplacementsMissing,
    ) -> list[RecoveryAction]:
        writing = self._writing
        assert writing is not None
        before = writing.first_pending_entry_id
        actions: list[RecoveryAction] = []
        match event:
            case e.SpanStored(bookie_id, first_entry_id):
                writing.stored(bookie_id, first_entry_id)
            case e.SpanRefused(bookie_id, first_entry_id, Status.CONFLICT):
                return self._give_up(e.OtherBytesStored(bookie_id, first_entry_id))
            case e.SpanRefused(bookie_id, _first, Status.UNAUTHORIZED):
                return self._fail(e.PasswordRefused(bookie_id))
            case e.SpanRefused(bookie_id, _first, _status, reason):
                actions += writing.failed(bookie_id, reason)
            case e.ReplacementsChosen(bookies):
                actions += writing.replaced(bookies)
            case e.ReplacementsMissing():
                actions += writing.without_replacement(event)
        if writing.first_pending_entry_id > before:
            actions.append(e.ReleaseEntries(writing.first_pending_entry_id))
        return actions + self._continue()

    def _continue(self) -> list[RecoveryAction]:
        """Write back found entries, read further, and check whether the end is reached."""
        actions = self._take_found()
        shortage = self._writing.verdict() if self._writing else None
        if shortage:
            return actions + self._give_up(shortage)
        match self._reader.verdict():
            case e.Undecided() as failure:
                return actions + self._give_up(failure)
            case Ended(entry_id):
                return actions + self._close_at(EntryId(entry_id - 1))
            case None:
                return actions + self._read_further()

    def _take_found(self) -> list[RecoveryAction]:
        actions: list[RecoveryAction] = []
        ended = isinstance(self._reader.verdict(), Ended)
        if self._writing is None and (ended or self._reader.has_found_first()):
            length = self._reader.length_before_start()
            if length is not None:
                self._begin_writing(length)
            elif not self._is_length_asked:
                self._is_length_asked = True
                return [e.FindLength(self._reader.start)]
        if self._writing is not None:
            for stretch in self._reader.take():
                actions += self._writing.add(stretch)
        return actions

    def _is_last_fragment_empty(self) -> bool:
        """Return whether enough replicas never had the first entry of the last fragment."""
        assert self._metadata is not None
        return self._reader.verdict() == Ended(self._metadata.last_fragment.first_entry_id)

    def _begin_writing(self, length_before: int) -> None:
        if self._writing is None:
            assert self._metadata is not None
            fragment = self._metadata.last_fragment
            quorum = self._metadata.quorum_of(fragment)
            self._writing = WriteBackPhase(quorum, fragment, self._reader.start, length_before)

    def _read_further(self) -> list[RecoveryAction]:
        if self._writing is not None and self._writing.pending_bytes >= PENDING_BYTES_MAX:
            return []
        return list(self._reader.requests())

    def _close_at(self, last_entry_id: EntryId) -> list[RecoveryAction]:
        """Close once the entry with enough negatives is the first one that is not written back."""
        writing = self._writing
        if writing is None or not writing.is_done:
            return []
        assert writing.first_pending_entry_id == last_entry_id + 1
        assert self._metadata is not None
        self._stage = _Stage.CLOSING
        return self._close_on(self._metadata, self._version)

    def _close_on(self, stored: LedgerMetadata, version: Version) -> list[RecoveryAction]:
        """Close on top of the current metadata; only older fragments may differ (rule 7.5)."""
        started, writing = self._metadata, self._writing
        assert started is not None
        assert writing is not None
        same_last = stored.last_fragment == started.last_fragment
        if stored.state is not LedgerState.IN_RECOVERY or not same_last:
            return self._fail(e.FragmentsChanged())
        last_entry_id = EntryId(writing.first_pending_entry_id - 1)
        recovered = writing.changed_fragments()
        return [e.StoreClosed(stored, version, recovered, last_entry_id, writing.length)]

    def _give_up(self, failure: e.RecoveryFailure) -> list[RecoveryAction]:
        self._stage = _Stage.GIVING_UP
        self._failure = failure
        return [e.ReadMetadata()]

    def _finish(self, metadata: LedgerMetadata, version: Version) -> list[RecoveryAction]:
        self._stage = _Stage.DONE
        return [e.Finish(metadata, version)]

    def _fail(self, failure: e.RecoveryFailure) -> list[RecoveryAction]:
        self._stage = _Stage.DONE
        return [e.Fail(failure)]
