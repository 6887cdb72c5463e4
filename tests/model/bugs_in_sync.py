"""Bugs of in-sync mode.

Leaves finding them to `bugs`. Source: protocol section 11.
"""

from collections.abc import Collection, Iterator
from typing import Any

from bookie.wire.messages import Status
from ledger_client.protocol import acks, recovery, recovery_read
from ledger_client.protocol import append_events as a
from ledger_client.protocol.acks import UnsettledBatches
from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.copy import CopyPlan
from ledger_client.protocol.ensemble import EnsembleHealth
from ledger_client.protocol.membership import ParkFailed, Shrink, ShrinkingMembership
from ledger_client.protocol.recovery_write import WriteBackPhase
from metadata.ids import EntryId
from metadata.ledgers import copies
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_metadata import LedgerMetadata, QuorumSpec
from tests.model.patches import Patches


def a_member_is_in_sync_before_its_copy_is_whole(patches: Patches) -> None:
    original = CopyPlan.ranges

    def ranges(self: Any) -> Iterator[Range]:
        for first, last in original(self):
            if first < last:
                yield first, last - 1

    patches.set(CopyPlan, "ranges", ranges)


def who_catches_up_is_stored_as_in_sync(patches: Patches) -> None:
    members = property(lambda self: self.last_fragment.ensemble)
    patches.set(LedgerMetadata, "in_sync_members", members)


def who_catches_up_counts_for_the_minimum(patches: Patches) -> None:
    original = AppendProtocol._take_metadata

    def take_metadata(self: Any, metadata: LedgerMetadata, version: Any) -> None:
        original(self, metadata, version)
        self._in_sync_members = metadata.last_fragment.ensemble

    patches.set(AppendProtocol, "_take_metadata", take_metadata)


def the_last_in_sync_member_leaves(patches: Patches) -> None:
    def decide(_self: Any, ensemble: Any, _in_sync: Any, health: EnsembleHealth) -> Any:
        remaining = tuple(b for b in ensemble if not health.is_out(b))
        return Shrink(remaining) if remaining else ParkFailed()

    patches.set(ShrinkingMembership, "decide", decide)


def the_set_shrinks_below_the_minimum(patches: Patches) -> None:
    original = ShrinkingMembership.decide

    def decide(self: Any, ensemble: Any, in_sync: Any, health: EnsembleHealth) -> Any:
        self._min_in_sync = 1
        return original(self, ensemble, in_sync, health)

    patches.set(ShrinkingMembership, "decide", decide)


def a_spare_takes_the_place_of_the_last_in_sync_member(patches: Patches) -> None:
    original = AppendProtocol._add_member

    def take_in(self: Any, bookie_id: Any, token: Any) -> list[a.AppendAction]:
        kept, self._in_sync_members = self._in_sync_members, self._ensemble
        actions = original(self, bookie_id, token)
        self._in_sync_members = kept
        return actions

    patches.set(AppendProtocol, "_add_member", take_in)


def all_but_one_are_enough(patches: Patches) -> None:
    original = UnsettledBatches.confirm

    def confirm(self: Any) -> bool:
        for batch in list(self._unconfirmed)[:1]:
            if batch.stored.bit_count() >= max(1, self._quorum.ack_quorum - 1):
                batch.stored = batch.write_set
        return original(self)

    patches.set(UnsettledBatches, "confirm", confirm)


def as_many_as_the_minimum_are_enough(patches: Patches) -> None:
    original = UnsettledBatches.confirm

    def confirm(self: Any) -> bool:
        for batch in list(self._unconfirmed)[:1]:
            if batch.stored.bit_count() >= self._quorum.min_in_sync:
                batch.stored = batch.write_set
        return original(self)

    patches.set(UnsettledBatches, "confirm", confirm)


def answers_stay_where_they_were(patches: Patches) -> None:
    patches.set(acks, "_moved", lambda mask, sources: mask & ((1 << len(sources)) - 1))


def answers_of_who_left_count_for_who_joins(patches: Patches) -> None:
    def reassign(self: Any, sources: Any, quorum: Any) -> None:
        count = len(self._unanswered_bytes)
        kept = [p if s is None and p < count else s for p, s in enumerate(sources)]
        original(self, kept, quorum)

    original = UnsettledBatches.reassign
    patches.set(UnsettledBatches, "reassign", reassign)


def entries_are_confirmed_below_the_minimum(patches: Patches) -> None:
    patches.set(AppendProtocol, "lacks_in_sync", property(lambda _self: False))


def a_member_joins_during_a_change(patches: Patches) -> None:
    original = AppendProtocol._add_member

    def take_in(self: Any, bookie_id: Any, token: Any) -> list[a.AppendAction]:
        base, self._base = self._base, None
        actions = original(self, bookie_id, token)
        self._base = self._base or base
        return actions

    patches.set(AppendProtocol, "_add_member", take_in)


def a_member_that_returns_is_sent_nothing(patches: Patches) -> None:
    patches.set(UnsettledBatches, "resume_position", lambda _self, _position: None)


def the_parked_are_not_judged_again(patches: Patches) -> None:
    patches.set(EnsembleHealth, "unpark_all", lambda _self: None)


def a_laggard_is_never_forgiven(patches: Patches) -> None:
    def stored(self: Any, first: EntryId, bookie_id: Any) -> list[a.AppendAction]:
        position = self._position(bookie_id)
        if position is None or not self._pending.record(first, position):
            return []
        actions: list[a.AppendAction] = self._advance()
        return actions

    patches.set(AppendProtocol, "_stored", stored)


def what_the_copier_stored_is_not_looked_at(patches: Patches) -> None:
    patches.set(AppendProtocol, "_metadata_seen", lambda *_: [])


def what_the_copier_stored_is_taken_though_older(patches: Patches) -> None:
    original = AppendProtocol._metadata_seen

    def seen(self: Any, metadata: LedgerMetadata, version: Any) -> list[a.AppendAction]:
        if version < self._version:
            self._version = version - 1
        return original(self, metadata, version)

    patches.set(AppendProtocol, "_metadata_seen", seen)


def a_lone_survivor_is_refused(patches: Patches) -> None:
    def without_replacement(self: Any, event: Any) -> Any:
        self._failures.is_choosing = False
        self._failures.shortage = event
        return self._choose()

    patches.set(WriteBackPhase, "without_replacement", without_replacement)


def recovery_needs_a_majority_of_members(patches: Patches) -> None:
    def covers(spec: QuorumSpec, known: Collection[int]) -> bool:
        return len(known) > spec.ensemble_size // 2

    patches.set(recovery, "covers", covers)


def recovery_waits_for_one_member_alone(patches: Patches) -> None:
    def is_covered(self: Any) -> bool:
        return copies.covers(self._quorum, self.known_positions)

    patches.set(recovery.FencePhase, "is_covered", property(is_covered))


def a_negative_is_preferred(patches: Patches) -> None:
    original = recovery_read._Chunk.verdict

    def verdict(self: Any, needed: int, *, prefers_found: bool) -> Any:
        assert prefers_found in (True, False)
        return original(self, needed, prefers_found=False)

    patches.set(recovery_read._Chunk, "verdict", verdict)


def silence_of_a_member_is_a_negative(patches: Patches) -> None:
    patches.set(recovery_read, "NEGATIVES", (Status.NO_SUCH_ENTRY, Status.UNKNOWN))


def silence_of_a_member_is_a_negative_and_preferred(patches: Patches) -> None:
    silence_of_a_member_is_a_negative(patches)
    a_negative_is_preferred(patches)


def the_write_back_drops_state_when_it_shrinks(patches: Patches) -> None:
    original = WriteBackPhase.without_replacement

    def without_replacement(self: Any, event: Any) -> Any:
        actions = original(self, event)
        self._pending.clear()
        return actions

    patches.set(WriteBackPhase, "without_replacement", without_replacement)


def the_close_names_who_was_left_out(patches: Patches) -> None:
    patches.set(WriteBackPhase, "changed_fragments", lambda _self: ())


def the_quorum_does_not_follow_the_members(patches: Patches) -> None:
    init, original = UnsettledBatches.__init__, UnsettledBatches.confirm

    def begin(self: Any, quorum: Any) -> None:
        init(self, quorum)
        self._needed = quorum.ack_quorum

    def confirm(self: Any) -> Any:
        oldest = next(iter(self._unconfirmed), None)
        is_short = oldest is not None and oldest.stored.bit_count() < self._needed
        return False if is_short else original(self)

    patches.set(UnsettledBatches, "__init__", begin)
    patches.set(UnsettledBatches, "confirm", confirm)
