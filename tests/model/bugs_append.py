"""Bugs of a writer, or of the store of its metadata.

Leaves finding them to `bugs`. Source: protocol sections 1, 4-6.
"""

from collections.abc import Callable
from typing import Any

from ledger_client.protocol import append_events as a
from ledger_client.protocol.acks import UnsettledBatches
from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.append_events import fenced
from ledger_client.protocol.ensemble import EnsembleHealth
from metadata.errors import OutcomeUnknownError, VersionConflictError
from metadata.ids import EntryId, Version
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from tests.model.patches import Patches
from tests.model.words import WRITER
from tests.model.world import Draft


def confirmed_during_a_change(patches: Patches) -> None:
    def advance(self: Any) -> list[a.AppendAction]:
        if self._pending.confirm():
            return [a.Confirm(self._pending.lac, self._pending.length)]
        return []

    patches.set(AppendProtocol, "_advance", advance)


def answers_of_the_replaced_count(patches: Patches) -> None:
    original = UnsettledBatches.reassign

    def reassign(self: Any, sources: Any, quorum: Any) -> None:
        kept = [batch.stored for batch in self._unconfirmed]
        original(self, sources, quorum)
        for batch, stored in zip(self._unconfirmed, kept, strict=True):
            batch.stored |= stored

    patches.set(UnsettledBatches, "reassign", reassign)


def the_resend_is_skipped(patches: Patches) -> None:
    patches.set(AppendProtocol, "_send_missing", lambda _self: [])


def the_new_fragment_starts_behind_the_last_push(patches: Patches) -> None:
    original = AppendProtocol._store_ensemble

    def put_in_charge(self: Any, ensemble: Any, token: Any) -> list[a.AppendAction]:
        pending = self._pending
        lac, pending.lac = pending.lac, pending.lap
        actions = original(self, ensemble, token)
        pending.lac = lac
        return actions

    patches.set(AppendProtocol, "_store_ensemble", put_in_charge)


def one_answer_is_enough(patches: Patches) -> None:
    original = UnsettledBatches.confirm

    def confirm(self: Any) -> bool:
        for batch in list(self._unconfirmed)[:1]:
            if batch.stored:
                batch.stored = batch.write_set
        return original(self)

    patches.set(UnsettledBatches, "confirm", confirm)


def entries_are_confirmed_out_of_order(patches: Patches) -> None:
    def confirm(self: Any) -> bool:
        needed = self._quorum.ack_quorum
        ready = [b for b in self._unconfirmed if b.stored.bit_count() >= needed]
        while ready and self._unconfirmed:
            batch = self._unconfirmed.popleft()
            self._confirmed.append(batch)
            self.lac, self.length = batch.last_entry_id, batch.length_after
            if batch is ready[-1]:
                break
        return bool(ready)

    patches.set(UnsettledBatches, "confirm", confirm)


def the_close_confirms_what_comes_late(patches: Patches) -> None:
    def advance(self: Any) -> list[a.AppendAction]:
        changing = self._choosing or (self._base is not None and self._close_token is None)
        if not changing and self._pending.confirm():
            return [a.Confirm(self._pending.lac, self._pending.length)]
        return []

    patches.set(AppendProtocol, "_advance", advance)


def the_close_has_the_length_of_what_was_pushed(patches: Patches) -> None:
    original = AppendProtocol._store_close

    def store_close(self: Any) -> list[a.AppendAction]:
        self._pending.length = self._pending._pushed_length
        return original(self)

    patches.set(AppendProtocol, "_store_close", store_close)


def _blind(patches: Patches, is_blind: Callable[[int], bool]) -> None:
    original = Draft.compare_and_set

    def compare_and_set(self: Draft, metadata: int, expected: int) -> bool:
        actor = self._pools.metadata.values[metadata].update_token[0]
        return original(self, metadata, self.version if is_blind(actor) else expected)

    patches.set(Draft, "compare_and_set", compare_and_set)


def the_writer_stores_metadata_blind(patches: Patches) -> None:
    _blind(patches, lambda actor: actor == WRITER)


def the_recoverer_stores_metadata_blind(patches: Patches) -> None:
    _blind(patches, lambda actor: actor != WRITER)


def a_fence_does_not_end_the_writer(patches: Patches) -> None:
    patches.set(AppendProtocol, "_refused", lambda *_: [])


def a_fence_does_not_end_a_writer_that_stores_blind(patches: Patches) -> None:
    the_writer_stores_metadata_blind(patches)
    a_fence_does_not_end_the_writer(patches)


def a_fence_by_mistake_ends_the_writer(patches: Patches) -> None:
    """End the writer without a read, as protocol rule 4.7 was before."""
    original = AppendProtocol._failed

    def failed(self: Any, bookie_id: Any, kind: Any, reason: str) -> list[a.AppendAction]:
        if kind is a.FailureKind.FENCED:
            ended: list[a.AppendAction] = self._end(fenced(self._metadata))
            return ended
        return original(self, bookie_id, kind, reason)

    patches.set(AppendProtocol, "_failed", failed)


def a_stale_read_is_trusted(patches: Patches) -> None:
    """Take the metadata that the writer knew for those read after a FENCED answer."""
    original = AppendProtocol._update_ended

    def decided(self: Any, event: Any) -> list[a.AppendAction]:
        if self._health._in_check:
            event = a.MetadataConflicted(self._base, self._version)
        return original(self, event)

    patches.set(AppendProtocol, "_update_ended", decided)


def a_read_decides_fences_that_came_later(patches: Patches) -> None:
    original = EnsembleHealth.end_check

    def end_check(self: Any) -> None:
        self.begin_check()
        original(self)

    patches.set(EnsembleHealth, "end_check", end_check)


def a_conflict_is_taken_for_success(patches: Patches) -> None:
    store, decided = AppendProtocol._store, AppendProtocol._update_ended

    def note(self: Any, metadata: LedgerMetadata) -> list[a.AppendAction]:
        self._wanted = metadata
        return store(self, metadata)

    def decide(self: Any, event: Any) -> list[a.AppendAction]:
        if isinstance(event, a.MetadataConflicted):
            event = a.MetadataStored(self._wanted, event.version)
        return decided(self, event)

    patches.set(AppendProtocol, "_store", note)
    patches.set(AppendProtocol, "_update_ended", decide)


def the_state_is_not_looked_at_in_a_conflict(patches: Patches) -> None:
    original = AppendProtocol._update_ended

    def decided(self: Any, event: Any) -> list[a.AppendAction]:
        if isinstance(event, a.MetadataConflicted) and event.metadata.state is not LedgerState.OPEN:
            event = a.MetadataStored(self._base, event.version)
        return original(self, event)

    patches.set(AppendProtocol, "_update_ended", decided)


def a_conflict_is_adopted_without_resending(patches: Patches) -> None:
    original = AppendProtocol._update_ended

    def decided(self: Any, event: Any) -> list[a.AppendAction]:
        actions = original(self, event)
        if not isinstance(event, a.MetadataConflicted):
            return actions
        return [action for action in actions if not isinstance(action, a.SendBatch)]

    patches.set(AppendProtocol, "_update_ended", decided)


def an_own_earlier_attempt_is_not_adopted(patches: Patches) -> None:
    """Decide a conflict over a last fragment that differs as if it were the same."""
    original = AppendProtocol._update_ended

    def decided(self: Any, event: Any) -> list[a.AppendAction]:
        if isinstance(event, a.MetadataConflicted) and event.metadata.state is LedgerState.OPEN:
            self._base = event.metadata
        return original(self, event)

    patches.set(AppendProtocol, "_update_ended", decided)


def an_unknown_outcome_is_taken_for_success(patches: Patches) -> None:
    async def compare_and_set(self: Any, metadata: LedgerMetadata, expected: Version) -> Version:
        try:
            return Version(await self._writes.compare_and_set("", b"", expected))
        except OutcomeUnknownError:
            return Version(expected + 1)

    patches.set(LedgerStore, "compare_and_set", compare_and_set)


def an_unknown_outcome_is_taken_for_failure(patches: Patches) -> None:
    async def compare_and_set(self: Any, metadata: LedgerMetadata, expected: Version) -> Version:
        try:
            return Version(await self._writes.compare_and_set("", b"", expected))
        except OutcomeUnknownError:
            raise VersionConflictError("", expected) from None

    patches.set(LedgerStore, "compare_and_set", compare_and_set)


def a_change_is_abandoned_while_it_may_apply(patches: Patches) -> None:
    an_unknown_outcome_is_taken_for_failure(patches)

    def again(self: Any) -> list[a.AppendAction]:
        self._health.failed.clear()
        return [*self._send_missing(), *self._advance()]

    patches.set(AppendProtocol, "_decide_again", again)


def an_own_update_is_taken_for_a_conflict(patches: Patches) -> None:
    async def applied(self: Any, metadata: Any, expected: Version, backoff: Any) -> Version | None:
        _, version = await self._read_back(metadata.ledger_id, backoff)
        if version == expected:
            return None
        raise VersionConflictError("", expected)

    patches.set(LedgerStore, "_applied_version", applied)


def an_own_update_is_a_conflict_that_is_not_adopted(patches: Patches) -> None:
    an_own_update_is_taken_for_a_conflict(patches)
    an_own_earlier_attempt_is_not_adopted(patches)


def the_writer_closes_from_in_recovery(patches: Patches) -> None:
    original = AppendProtocol._update_ended

    def with_closed(self: Any, last: EntryId, length: int, token: Any) -> LedgerMetadata:
        closed: LedgerMetadata = self._closed(self.fragments, last, length, token)
        return closed

    def decided(self: Any, event: Any) -> list[a.AppendAction]:
        if event.metadata.state is LedgerState.IN_RECOVERY and self._close_token is not None:
            self._base = None
            self._metadata, self._version = event.metadata, event.version
            actions: list[a.AppendAction] = self._store_close()
            return actions
        return original(self, event)

    patches.set(LedgerMetadata, "with_closed", with_closed)
    patches.set(AppendProtocol, "_update_ended", decided)
