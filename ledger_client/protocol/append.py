"""Decides what the writer of one open ledger does next.

Leaves performing it to `ledger_client.writer`, counting answers to `acks`, and the steps of an
ensemble change to `ensemble`.

Invariants: nothing is confirmed while a change of the ensemble is under way (5.2); at most one
compare-and-set is under way, and none is abandoned (1.3); the LAC never moves once closing began.

Source: protocol sections 4-6 and rules 1.3-1.5.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, assert_never

from bookie.wire.messages import Status
from ledger_client.errors import (
    EntryConflictError,
    LedgerError,
    LedgerFencedError,
    LedgerNotFoundError,
    NotEnoughBookiesError,
    TooManyFragmentsError,
    UnauthorizedError,
)
from ledger_client.protocol import append_events as e
from ledger_client.protocol.acks import PendingBatches
from ledger_client.protocol.append_events import AppendAction, AppendEvent, FailureKind
from ledger_client.protocol.ensemble import EnsembleHealth
from metadata.ids import BookieId, EntryId, UpdateToken, Version
from metadata.ledger_metadata import FRAGMENTS_MAX, LedgerMetadata, LedgerState

REFUSING_BOOKIES_MAX: Final = 2
"""So many bookies that refuse the same batch end the writer: it would be refused everywhere."""


@dataclass(frozen=True, slots=True)
class AppendOptions:
    """What a user may choose of the append protocol's behaviour."""

    delay_ensemble_change: bool = False
    run_degraded: bool = False
    unanswered_bytes_max: int = 256 * 1024 * 1024


class _Phase(StrEnum):
    OPEN = "open"
    CLOSING = "closing"
    ENDED = "ended"


class AppendProtocol:
    """The decisions of one ledger's only writer (protocol sections 4-6). Performs nothing."""

    def __init__(self, metadata: LedgerMetadata, version: Version, options: AppendOptions) -> None:
        assert metadata.state is LedgerState.OPEN, "only an open ledger has a writer"
        self._metadata = metadata
        self._version = version
        self._options = options
        self._pending = PendingBatches(metadata.quorum)
        self._health = EnsembleHealth(metadata.quorum)
        self._phase = _Phase.OPEN
        self._close_token: UpdateToken | None = None  # set: close at the LAC once nothing is stored
        self._base: LedgerMetadata | None = None  # set: a compare-and-set on top of it is under way
        self._choosing = False
        self._refused_first: EntryId | None = None
        self._refusing: list[BookieId] = []

    @property
    def metadata(self) -> LedgerMetadata:
        """The ledger as stored, as far as this writer knows."""
        return self._metadata

    @property
    def lac(self) -> EntryId:
        """The last entry that is confirmed."""
        return self._pending.lac

    @property
    def has_ended(self) -> bool:
        """Whether the writer is at its end: closed, fenced, or refused for good."""
        return self._phase is _Phase.ENDED

    @property
    def parked(self) -> Sequence[BookieId]:
        """The members that failed and are not being replaced: no spare exists, or the change is
        delayed (5.4).
        """
        is_steady = self._phase is _Phase.OPEN and not self.is_changing
        return self._health.out if is_steady else self._health.parked

    @property
    def is_changing(self) -> bool:
        """Whether an ensemble change or the close is under way."""
        return self._choosing or self._base is not None

    def handle(self, event: AppendEvent) -> list[AppendAction]:
        """Advance by one event; the caller performs the returned actions in order."""
        if self._phase is _Phase.ENDED:
            return []
        match event:
            case e.BatchStored(first_entry_id, bookie_id):
                return self._stored(first_entry_id, bookie_id)
            case e.BatchAppended(first_entry_id, count, payload_bytes):
                return self._appended(first_entry_id, count, payload_bytes)
            case e.StoreRefused(first_entry_id, bookie_id, status):
                return self._refused(first_entry_id, bookie_id, status)
            case e.BookieFailed(bookie_id, kind, reason):
                return self._failed(bookie_id, kind, reason)
            case e.BookieReturned() | e.SpareJoined():
                return self._better(event)
            case e.ReplacementsChosen() | e.NoReplacement():
                return self._chosen(event)
            case e.MetadataStored() | e.MetadataConflicted() | e.MetadataRefused():
                return self._decided(event)
            case e.CloseRequested() | e.WriterFailed():
                return self._finish(event)
            case _ as never:
                assert_never(never)

    # -- entries ---------------------------------------------------------------------------------

    def _appended(self, first: EntryId, count: int, payload_bytes: int) -> list[AppendAction]:
        batch = self._pending.add(first, count, payload_bytes)
        targets: list[BookieId] = []
        actions: list[AppendAction] = []
        for position, bookie_id in enumerate(self._metadata.last_fragment.ensemble):
            if not batch.write_set & (1 << position) or self._health.is_out(bookie_id):
                continue
            self._pending.note_sent(batch, position)
            targets.append(bookie_id)
            if self._pending.unanswered_bytes(position) > self._options.unanswered_bytes_max:
                self._health.fail(bookie_id, FailureKind.BACKLOG, "too many bytes unanswered")
        if targets:
            actions.append(e.SendBatch(first, tuple(targets)))
        return actions + self._begin_change() if self._health.has_failed else actions

    def _stored(self, first: EntryId, bookie_id: BookieId) -> list[AppendAction]:
        position = self._position(bookie_id)
        if position is None or not self._pending.record(first, position):
            return []  # rule 4.4: it no longer holds the position, or has answered before
        return self._advance()

    def _refused(self, first: EntryId, bookie_id: BookieId, status: Status) -> list[AppendAction]:
        """Judge a refusal: some end the writer (4.7), the others fail the bookie."""
        ledger_id = self._metadata.ledger_id
        if self._position(bookie_id) is None:
            return []
        if status is Status.FENCED:
            return self._end(fenced(self._metadata))
        if status is Status.DELETED:
            text = "it was deleted while being written"
            return self._end(LedgerNotFoundError(text, ledger_id=ledger_id, outcome="unknown"))
        if status is Status.UNAUTHORIZED:
            text = f"bookie {bookie_id} refused the password of this writer"
            return self._end(UnauthorizedError(text, ledger_id=ledger_id, outcome="unknown"))
        if status is Status.CONFLICT:
            text = f"bookie {bookie_id} holds other bytes at entry {first}: recover the ledger"
            return self._end(EntryConflictError(text, ledger_id=ledger_id, entry_id=first))
        if status is Status.BAD_REQUEST and self._is_refused_by_many(first, bookie_id):
            text = (
                f"{REFUSING_BOOKIES_MAX} bookies cannot take the batch at entry {first}: "
                "compare `entry_bytes_max` of this client with theirs"
            )
            return self._fail(LedgerError(text, ledger_id=ledger_id, outcome="unknown"))
        return self._failed(bookie_id, FailureKind.GONE, f"answered {status.name}")

    def _is_refused_by_many(self, first: EntryId, bookie_id: BookieId) -> bool:
        """One bookie may have got damaged bytes; what several refuse, no other will take."""
        if self._refused_first != first:
            self._refused_first, self._refusing = first, []
        if bookie_id not in self._refusing:
            self._refusing.append(bookie_id)
        return len(self._refusing) >= REFUSING_BOOKIES_MAX

    def _advance(self) -> list[AppendAction]:
        """Confirm what is acknowledged, unless a change or the close forbids it (5.2, 6.1)."""
        actions: list[AppendAction] = []
        if self._phase is _Phase.OPEN and not self.is_changing and self._pending.confirm():
            actions.append(e.Confirm(self._pending.lac, self._pending.length))
        settled, short = self._pending.settle(self._positions_mask(self.parked))
        if short:
            actions += [e.RecordStretch(first, last) for first, last in short]
        if settled is not None:
            actions.append(e.Settle(settled))
        return actions

    # -- bookies ---------------------------------------------------------------------------------

    def _failed(self, bookie_id: BookieId, kind: FailureKind, reason: str) -> list[AppendAction]:
        if self._position(bookie_id) is None:
            return []  # rule 5.3
        self._health.fail(bookie_id, kind, reason)
        return self._begin_change()

    def _better(self, event: e.BookieReturned | e.SpareJoined) -> list[AppendAction]:
        if isinstance(event, e.SpareJoined):
            self._health.unpark_all()
            return self._begin_change()
        position = self._position(event.bookie_id)
        if self._phase is not _Phase.OPEN or position is None:
            return []
        if not self._health.forgive(event.bookie_id):
            return []
        self._pending.resume_position(position)
        return [*self._send_missing(), *self._advance()]

    def _begin_change(self) -> list[AppendAction]:
        """Ask for replacements, unless a change is under way: then this failure waits (5.3)."""
        ensemble = self._metadata.last_fragment.ensemble
        if self._phase is not _Phase.OPEN or self.is_changing or not self._health.has_failed:
            return []
        if self._options.delay_ensemble_change and not self._health.must_replace(ensemble):
            return []  # rule 5.4
        self._choosing = True
        positions = tuple(p for p, b in enumerate(ensemble) if b in self._health.failed)
        return [e.ChooseReplacements(ensemble, positions, self._health.reasons())]

    def _chosen(self, event: e.ReplacementsChosen | e.NoReplacement) -> list[AppendAction]:
        if not self._choosing:
            return []
        self._choosing = False
        if self._close_token is not None:
            return self._store_close()
        if isinstance(event, e.NoReplacement):
            return self._go_on_without(event)
        metadata = self._metadata
        first = EntryId(self._pending.lac + 1)
        last = metadata.last_fragment
        if len(metadata.fragments) >= FRAGMENTS_MAX and first != last.first_entry_id:
            text = f"it has {FRAGMENTS_MAX} fragments, the most allowed: go on in a new ledger"
            error = TooManyFragmentsError(text, ledger_id=metadata.ledger_id, outcome="unknown")
            return self._fail(error)
        ensemble = tuple(event.replacements.get(p, b) for p, b in enumerate(last.ensemble))
        return self._store(metadata.with_ensemble_change(first, ensemble, event.token))

    def _go_on_without(self, event: e.NoReplacement) -> list[AppendAction]:
        ensemble = self._metadata.last_fragment.ensemble
        gone = self._health.gone()
        if gone and not (self._options.run_degraded and self._health.can_park(ensemble)):
            needed, seen = event.needed, event.seen
            text = (
                f"no replacement for {', '.join(gone)}: {needed} more needed, {seen} bookies seen, "
                f"excluded {dict(event.excluded)}: start bookies, then write a new ledger "
                "(this one is closed at its last confirmed entry)"
            )
            error = NotEnoughBookiesError(
                text,
                needed=needed,
                seen=seen,
                excluded={str(b): why for b, why in event.excluded.items()},
                ledger_id=self._metadata.ledger_id,
                outcome="unknown",
            )
            return self._fail(error)
        self._health.set_aside(ensemble)
        return [*self._send_missing(), *self._advance()]

    # -- metadata --------------------------------------------------------------------------------

    def _store(self, metadata: LedgerMetadata) -> list[AppendAction]:
        self._base = self._metadata
        return [e.StoreMetadata(metadata, self._version)]

    def _decided(
        self, event: e.MetadataStored | e.MetadataConflicted | e.MetadataRefused
    ) -> list[AppendAction]:
        base = self._base
        assert base is not None, "a decision without a request"
        self._base = None
        if isinstance(event, e.MetadataRefused):
            return self._end(event.error)
        stored = event.metadata
        self._metadata, self._version = stored, event.version
        if stored.state is not LedgerState.OPEN:
            return self._found_not_open(stored)
        if isinstance(event, e.MetadataConflicted) and stored.last_fragment == base.last_fragment:
            # Rule 1.4: a repair changed an older fragment; decide again on top of it.
            return self._store_close() if self._close_token is not None else self._again()
        return self._adopt(base, stored)

    def _again(self) -> list[AppendAction]:
        return self._begin_change() or [*self._send_missing(), *self._advance()]

    def _adopt(self, base: LedgerMetadata, stored: LedgerMetadata) -> list[AppendAction]:
        """Put the stored ensemble in charge, by rule 5.2: clear, resend, and only then confirm."""
        before, after = base.last_fragment.ensemble, stored.last_fragment.ensemble
        changed = [p for p, (old, new) in enumerate(zip(before, after, strict=True)) if old != new]
        for position in changed:
            self._pending.clear_position(position)
        self._health.keep_only(after)
        replaced = tuple(before[p] for p in changed)
        actions: list[AppendAction] = [e.EnsembleChanged(stored.last_fragment, replaced)]
        if self._close_token is not None:
            return actions + self._store_close()
        actions += self._send_missing()
        actions += self._advance()
        return actions + self._begin_change()

    def _send_missing(self) -> list[AppendAction]:
        """Send every unconfirmed batch to those of its write set that it is not on its way to."""
        ensemble = self._metadata.last_fragment.ensemble
        out = self._positions_mask([b for b in ensemble if self._health.is_out(b)])
        actions: list[AppendAction] = []
        for batch in self._pending.unconfirmed:
            missing = batch.write_set & ~batch.sent & ~batch.stored & ~out
            if not missing:
                continue
            positions = [p for p in range(len(ensemble)) if missing & (1 << p)]
            for position in positions:
                self._pending.note_sent(batch, position)
            targets = tuple(ensemble[p] for p in positions)
            actions.append(e.SendBatch(batch.first_entry_id, targets))
        return actions

    # -- the end ---------------------------------------------------------------------------------

    def _store_close(self) -> list[AppendAction]:
        """Close at the LAC, as soon as no other compare-and-set is under way (1.3, 6.1)."""
        if self.is_changing:
            return []
        token = self._close_token
        assert token is not None
        closed = self._metadata.with_closed(self._pending.lac, self._pending.length, token)
        return [*self._give_up_unsettled(), *self._store(closed)]

    def _finish(self, event: e.CloseRequested | e.WriterFailed) -> list[AppendAction]:
        if isinstance(event, e.WriterFailed):
            return self._fail(event.error)
        self._phase, self._close_token = _Phase.CLOSING, event.token
        return self._store_close()

    def _fail(self, error: LedgerError) -> list[AppendAction]:
        """Confirm nothing more; the shell asks for the close, at the LAC, with a fresh token."""
        self._phase = _Phase.CLOSING
        return [e.FailWriter(error)]

    def _found_not_open(self, stored: LedgerMetadata) -> list[AppendAction]:
        ours = stored.last_entry_id == self._pending.lac and stored.length == self._pending.length
        if self._close_token is not None and stored.state is LedgerState.CLOSED and ours:
            self._phase = _Phase.ENDED
            return [e.Closed(stored)]  # rule 6.2
        return self._end(fenced(stored))

    def _end(self, error: LedgerError) -> list[AppendAction]:
        actions = self._give_up_unsettled()
        self._phase = _Phase.ENDED
        return [*actions, e.FailWriter(error)]

    def _give_up_unsettled(self) -> list[AppendAction]:
        """Hand to repair what is short of its write quorum (6.3)."""
        _, short = self._pending.settle(given_up=-1)
        return [e.RecordStretch(first, last) for first, last in short]

    # -- positions -------------------------------------------------------------------------------

    def _position(self, bookie_id: BookieId) -> int | None:
        ensemble = self._metadata.last_fragment.ensemble
        return ensemble.index(bookie_id) if bookie_id in ensemble else None

    def _positions_mask(self, bookie_ids: Sequence[BookieId]) -> int:
        if not bookie_ids:
            return 0
        ensemble = self._metadata.last_fragment.ensemble
        return sum(1 << p for p, b in enumerate(ensemble) if b in bookie_ids)


def fenced(metadata: LedgerMetadata) -> LedgerFencedError:
    """Return the error of a writer that was taken over; what is pending may be in the ledger."""
    text = "another client fenced it and recovers or recovered it: open it to see how it ended"
    return LedgerFencedError(text, ledger_id=metadata.ledger_id)
