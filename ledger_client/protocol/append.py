"""Append protocol: decisions of the writer of one open ledger.

Leaves performing the actions to `ledger_client.writing.append_shell`, counting answers to `acks`,
and the state of failed members to `ensemble`.

Invariants: nothing is confirmed while a change of the ensemble is under way (5.2); at most one
compare-and-set is under way, and none is abandoned (1.3); the LAC never moves after closing begins.

Source: protocol sections 4-6 and rules 1.3-1.5.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import assert_never

from bookie.wire.messages import Status
from ledger_client.errors import LedgerError
from ledger_client.protocol import append_events as e
from ledger_client.protocol import membership as m
from ledger_client.protocol.acks import UnsettledBatches
from ledger_client.protocol.append_events import AppendAction, AppendEvent, FailureKind
from ledger_client.protocol.append_options import AppendOptions
from ledger_client.protocol.ensemble import EnsembleHealth, bookies_at, positions_mask
from metadata.ids import BookieId, EntryId, UpdateToken, Version
from metadata.ledgers.ledger_metadata import FRAGMENTS_MAX, LedgerMetadata, LedgerState


class _Phase(StrEnum):
    OPEN = "open"
    CLOSING = "closing"
    ENDED = "ended"


_OPEN, _CLOSING, _ENDED = _Phase  # a lookup in the enumeration costs more than the comparison


class AppendProtocol:
    """Decisions of one ledger's only writer (protocol sections 4-6). Performs nothing."""

    def __init__(self, metadata: LedgerMetadata, version: Version, options: AppendOptions) -> None:
        assert metadata.state is LedgerState.OPEN, "only an open ledger has a writer"
        self._seen_during_update: tuple[LedgerMetadata, Version] | None = None
        self._take_metadata(metadata, version)
        self._options = options
        self._pending = UnsettledBatches(metadata.quorum_of(metadata.last_fragment))
        self._health = EnsembleHealth(metadata.quorum)
        self._membership = m.membership_of(metadata.quorum, options)
        self._phase = _OPEN
        self._close_token: UpdateToken | None = None  # set from the request to close at the LAC on
        self._base: LedgerMetadata | None = None  # set while a compare-and-set on it is under way
        self._choosing = False
        self._is_ensemble_change = False  # what the compare-and-set is for
        self._refused_batches = e.RefusedBatches()

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
        """Whether the writer has ended: closed, fenced, or permanently refused."""
        return self._phase is _ENDED

    @property
    def parked(self) -> Sequence[BookieId]:
        """Failed members without a replacement: no spare, or a delayed change (5.4)."""
        return self._health.out if self._is_steady else self._health.parked

    @property
    def out(self) -> Sequence[BookieId]:
        """Members that failed, whether a change of the ensemble is under way or not."""
        return self._health.out

    @property
    def false_fences(self) -> Sequence[BookieId]:
        """Bookies that fence the ledger without a recovery; they never become members again."""
        return self._health.false_fences

    @property
    def in_sync(self) -> tuple[BookieId, ...]:
        """Members that hold every entry, are alive and do not lag (rule 11.4)."""
        if self._health.is_whole:
            return self._in_sync_members
        return tuple(b for b in self._in_sync_members if not self._health.is_absent(b))

    @property
    def lacks_in_sync(self) -> bool:
        """Whether to refuse new appends: fewer than `min_in_sync` members are in sync."""
        return self._least_in_sync > 0 and len(self.in_sync) < self._least_in_sync

    def lag_entries(self, bookie_id: BookieId) -> int:
        """Return how many entries a member lacks; 0 if it has the oldest one, or is out."""
        position = self._position(bookie_id)
        if position is None or self._health.is_out(bookie_id):
            return 0
        return self._pending.lag_entries(position)

    def may_suspect(self, bookie_id: BookieId, *, has_spare: bool) -> bool:
        """Return whether the ledger can do without a silent member (rule 5.7)."""
        may_change = self._is_steady and self._position(bookie_id) is not None
        membership = self._membership
        return may_change and membership.may_suspect(bookie_id, self.in_sync, has_spare=has_spare)

    @property
    def is_changing(self) -> bool:
        """Whether an ensemble change or the close is under way."""
        return self._choosing or self._base is not None

    @property
    def _is_steady(self) -> bool:
        return self._phase is _OPEN and not self._choosing and self._base is None

    def handle(self, event: AppendEvent) -> list[AppendAction]:  # noqa: PLR0911 - one for each
        """Advance by one event; the caller performs the returned actions in order."""
        if self._phase is _ENDED:
            return []
        match event:
            case e.BatchStored():  # capture patterns would cost six times as much
                return self._stored(event.first_entry_id, event.bookie_id)
            case e.BatchAppended():
                return self._appended(event.first_entry_id, event.count, event.payload_bytes)
            case e.StoreRefused(first_entry_id, bookie_id, status):
                return self._refused(first_entry_id, bookie_id, status)
            case e.BookieFailed(bookie_id, kind, reason):
                return self._failed(bookie_id, kind, reason)
            case e.BookieReturned() | e.SpareJoined() | e.MemberReady():
                return self._bookie_available(event)
            case e.ReplacementsChosen() | e.ReplacementsMissing() | e.MembersProposed():
                return self._members_chosen(event)
            case e.MetadataStored() | e.MetadataConflicted() | e.MetadataRefused():
                return self._update_ended(event)
            case e.ChangeUnsent():
                return self._drop_change()
            case e.MetadataSeen(metadata, version):
                return self._metadata_seen(metadata, version)
            case e.CloseRequested() | e.WriterFailed():
                return self._finish(event)
            case _ as never:
                assert_never(never)

    # -- entries ---------------------------------------------------------------------------------

    def _appended(self, first: EntryId, count: int, payload_bytes: int) -> list[AppendAction]:
        batch = self._pending.add(first, count, payload_bytes)
        positions = batch.write_set & ~self._out_mask
        self._pending.note_sent(batch, positions)
        for late in self._pending.backlogged(positions, self._options.unanswered_bytes_max):
            self._health.fail(self._ensemble[late], FailureKind.BACKLOG, "too much unanswered")
        to = bookies_at(self._ensemble, positions)
        actions: list[AppendAction] = [e.SendBatch(first, to)] if to else []
        return actions + self._begin_change() if self._health.has_failed else actions

    def _stored(self, first: EntryId, bookie_id: BookieId) -> list[AppendAction]:
        position = self._position(bookie_id)
        if position is None or not self._pending.record(first, position):
            return []  # rule 4.4: it no longer has the position, or has answered before
        if self._health.is_lagging(bookie_id) and not self._pending.is_behind(position):
            self._health.forgive(bookie_id)
            return self._decide_again()
        return self._advance()

    def _refused(self, first: EntryId, bookie_id: BookieId, status: Status) -> list[AppendAction]:
        """Handle a refusal: some end the writer (4.7), the others fail the bookie."""
        if self._position(bookie_id) is None:
            return []
        error = e.final_refusal(self._metadata, bookie_id, first, status)
        if error is not None:
            return self._end(error)
        if status is Status.BAD_REQUEST and self._refused_batches.count(first, bookie_id):
            return self._fail(e.refused_by_many(self._metadata, first))
        kind = FailureKind.FENCED if status is Status.FENCED else FailureKind.GONE
        return self._failed(bookie_id, kind, f"answered {status.name}")

    def _advance(self) -> list[AppendAction]:
        """Confirm what is acknowledged, unless a change or the close forbids it (5.2, 6.1)."""
        actions: list[AppendAction] = []
        if self._is_steady and not self.lacks_in_sync and self._pending.confirm():
            actions.append(e.Confirm(self._pending.lac, self._pending.length))
        given_up = 0 if self._health.is_whole else positions_mask(self._ensemble, self.parked)
        settled, short = self._pending.settle(given_up)
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

    def _bookie_available(
        self, event: e.BookieReturned | e.SpareJoined | e.MemberReady
    ) -> list[AppendAction]:
        if isinstance(event, e.SpareJoined):
            self._health.unpark_all()
            return self._begin_change()
        if isinstance(event, e.MemberReady):
            return self._add_member(event.bookie_id, event.token)
        position = self._position(event.bookie_id)
        if self._phase is not _OPEN or position is None or self._health.fences(event.bookie_id):
            return []
        if self._health.is_lagging(event.bookie_id) or not self._health.forgive(event.bookie_id):
            return []
        self._pending.resume_position(position)
        return self._decide_again()

    def _begin_change(self) -> list[AppendAction]:
        """Begin an ensemble change for failed bookies, unless one is under way (5.3)."""
        if not self._is_steady or not self._health.has_failed:
            return []
        if self._health.begin_check():
            self._base = self._metadata  # nothing is confirmed until the answer (4.7)
            self._is_ensemble_change = False
            return [e.ReadMetadata()]
        match self._decide():
            case m.Replace(positions):
                self._choosing = True
                return [e.ChooseReplacements(self._ensemble, positions, self._health.reasons())]
            case m.Shrink(remaining):
                self._choosing = True
                return [e.ProposeMembers(remaining)]
            case m.ParkFailed():
                self._health.park_all()
                return [*self._send_missing(), *self._advance()]
            case None:
                return []  # rule 5.4

    def _decide(self) -> m.Decision:
        return self._membership.decide(self._ensemble, self.in_sync, self._health)

    def _members_chosen(
        self, event: e.ReplacementsChosen | e.ReplacementsMissing | e.MembersProposed
    ) -> list[AppendAction]:
        if not self._choosing:
            return []
        self._choosing = False
        if self._close_token is not None:
            return self._store_close()
        if self._health.has_unchecked:
            return self._decide_again()  # a bookie answered FENCED since: this comes first
        match event:
            case e.ReplacementsMissing():
                return self._continue_without(event)
            case e.ReplacementsChosen(replacements, token):
                changed = tuple(replacements.get(p, b) for p, b in enumerate(self._ensemble))
                return self._store_ensemble(changed, token)
            case e.MembersProposed(token):
                decision = self._decide() if self._health.has_failed else None
                if isinstance(decision, m.Shrink):  # other members may have failed since: rule 11.4
                    return self._store_ensemble(decision.ensemble, token)
                return self._decide_again()

    def _add_member(self, bookie_id: BookieId, token: UpdateToken) -> list[AppendAction]:
        """Add a bookie as a member that catches up (rule 11.3), unless a change is due."""
        members = m.members_with(bookie_id, self._metadata, self._health.parked, self.in_sync)
        if not self._is_steady or members is None or self._health.fences(bookie_id):
            return []
        return self._store_ensemble(members, token)

    def _store_ensemble(
        self, ensemble: tuple[BookieId, ...], token: UpdateToken
    ) -> list[AppendAction]:
        """Store another ensemble from LAC + 1 on (rule 5.1)."""
        metadata = self._metadata
        first = EntryId(self._pending.lac + 1)
        is_new = first != metadata.last_fragment.first_entry_id
        if is_new and len(metadata.fragments) >= FRAGMENTS_MAX:
            return self._fail(e.too_many_fragments(metadata))
        actions = self._store(metadata.with_ensemble_change(first, ensemble, token))
        self._is_ensemble_change = True
        return actions

    def _drop_change(self) -> list[AppendAction]:
        """Drop a change of which nothing was sent, if every member that failed has answered again:
        the ensemble is as it was, and the answers of all its members count (rule 5.9).
        """
        is_change = self._choosing or (self._base is not None and self._is_ensemble_change)
        if self._phase is not _OPEN or not is_change or self._health.has_failed:
            return []
        self._choosing, self._base = False, None
        seen = self._seen_during_update
        actions: list[AppendAction] = [e.DropChange()]
        return actions + (self._metadata_seen(*seen) if seen else self._decide_again())

    def _continue_without(self, event: e.ReplacementsMissing) -> list[AppendAction]:
        gone = self._health.gone()
        if gone and not (self._options.run_degraded and self._health.can_park(self._ensemble)):
            return self._fail(e.no_replacement(self._metadata, gone, event))
        self._health.park(self._ensemble)
        return [*self._send_missing(), *self._advance()]

    # -- metadata --------------------------------------------------------------------------------

    def _store(self, metadata: LedgerMetadata) -> list[AppendAction]:
        self._base, self._is_ensemble_change = self._metadata, False
        return [e.StoreMetadata(metadata, self._version)]

    def _update_ended(
        self, event: e.MetadataStored | e.MetadataConflicted | e.MetadataRefused
    ) -> list[AppendAction]:
        base, self._base = self._base, None
        assert base is not None, "a decision without a request"
        if isinstance(event, e.MetadataRefused):
            return self._end(event.error)
        stored, version = event.metadata, event.version
        if self._seen_during_update is not None and self._seen_during_update[1] > version:
            stored, version = self._seen_during_update
        if stored.creation_token != base.creation_token or version < self._version:
            return self._end(e.replaced(base))
        self._take_metadata(stored, version)
        if stored.state is not LedgerState.OPEN:
            return self._found_not_open(stored)
        if isinstance(event, e.MetadataConflicted) and stored.last_fragment == base.last_fragment:
            # Rule 1.4: a repair changed an older fragment. Or a read checked a fence (4.7, 4.10).
            self._health.end_check()
            if self._close_token is not None:
                return self._store_close()
            if self._health.has_many_false_fences:
                return self._fail(e.fenced_by_many(stored, self.false_fences))
            return self._decide_again()
        return self._adopt(base, stored)

    def _metadata_seen(self, metadata: LedgerMetadata, version: Version) -> list[AppendAction]:
        """Continue with older fragments as they are stored now."""
        if self._base is not None:
            self._seen_during_update = metadata, version
        if self._base is not None or self._phase is not _OPEN or version <= self._version:
            return []
        self._take_metadata(metadata, version)
        if metadata.state is not LedgerState.OPEN:
            return self._found_not_open(metadata)
        return self._decide_again()

    def _take_metadata(self, metadata: LedgerMetadata, version: Version) -> None:
        self._metadata, self._version = metadata, version
        self._seen_during_update = None
        self._ensemble = metadata.last_fragment.ensemble
        self._least_in_sync = metadata.quorum.min_in_sync if metadata.quorum.is_in_sync else 0
        self._in_sync_members = metadata.in_sync_members if self._least_in_sync else ()

    def _decide_again(self) -> list[AppendAction]:
        """Decide again about members that could not be spared before."""
        if self._metadata.quorum.is_in_sync:
            self._health.unpark_all()
        return self._begin_change() or [*self._send_missing(), *self._advance()]

    def _adopt(self, base: LedgerMetadata, stored: LedgerMetadata) -> list[AppendAction]:
        """Switch to the stored ensemble by rule 5.2: clear, resend, and only then confirm."""
        before, after = base.last_fragment.ensemble, stored.last_fragment.ensemble
        sources = [before.index(b) if b in before else None for b in after]
        self._pending.reassign(sources, stored.quorum_of(stored.last_fragment))
        self._health.keep_only(after)
        actions: list[AppendAction] = [e.MembersChanged(stored.last_fragment, before)]
        if self._close_token is not None:
            return actions + self._store_close()
        actions += self._send_missing()
        actions += self._advance()
        if stored.quorum.is_in_sync:
            self._health.unpark_all()
        return actions + self._begin_change()

    def _send_missing(self) -> list[AppendAction]:
        """Send every unconfirmed batch to the bookies of its write set that it was not sent to."""
        if self._phase is not _OPEN:
            return []
        missing = self._pending.take_missing(self._out_mask)
        return [e.SendBatch(first, bookies_at(self._ensemble, at)) for first, at in missing]

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
        self._phase, self._close_token = _CLOSING, event.token
        return self._store_close()

    def _fail(self, error: LedgerError) -> list[AppendAction]:
        """Stop confirming; the shell requests the close, at the LAC, with a new token."""
        self._phase = _CLOSING
        return [e.FailWriter(error)]

    def _found_not_open(self, stored: LedgerMetadata) -> list[AppendAction]:
        ours = stored.last_entry_id == self._pending.lac and stored.length == self._pending.length
        if self._close_token is not None and stored.state is LedgerState.CLOSED and ours:
            self._phase = _ENDED
            return [e.Closed(stored)]  # rule 6.2
        return self._end(e.fenced(stored))

    def _end(self, error: LedgerError) -> list[AppendAction]:
        self._phase = _ENDED
        return [*self._give_up_unsettled(), e.FailWriter(error)]

    def _give_up_unsettled(self) -> list[AppendAction]:
        """Leave to repair what is short of its write quorum (6.3)."""
        _, short = self._pending.settle(given_up=-1)
        return [e.RecordStretch(first, last) for first, last in short]

    @property
    def _out_mask(self) -> int:
        return 0 if self._health.is_whole else positions_mask(self._ensemble, self._health.out)

    def _position(self, bookie_id: BookieId) -> int | None:
        return self._ensemble.index(bookie_id) if bookie_id in self._ensemble else None
