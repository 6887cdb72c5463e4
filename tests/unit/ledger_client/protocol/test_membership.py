"""Changes of an in-sync ledger's members: unit by unit, and in random histories (section 11).

Every seeded bug is found in some history; one that another rule hides is seeded together with that
rule.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger_client.protocol import append_events as a
from ledger_client.protocol.acks import BATCH_COST_BYTES, UnsettledBatch, UnsettledBatches
from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.append_options import AppendOptions
from ledger_client.protocol.ensemble import EnsembleHealth
from ledger_client.protocol.membership import (
    Decision,
    FixedMembership,
    Membership,
    ParkFailed,
    Replace,
    ReplacingMembership,
    Shrink,
    ShrinkingMembership,
    membership_of,
)
from metadata.errors import InvalidTransitionError
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import LedgerState, QuorumMode, QuorumSpec
from tests.support.ledger_client.append_model import InSyncModel, explore_in_sync
from tests.support.ledger_client.recovery_model import ViolationError

NAMES = tuple(BookieId(name) for name in "abcdef")
THREE_MIN_TWO = QuorumSpec(3, 3, 3, 4, QuorumMode.IN_SYNC, 2)
Members = tuple[BookieId, ...]
BUG_SEEDS = 3000
Patch = Callable[[pytest.MonkeyPatch], None]


def health_of(failed: Collection[BookieId], parked: Collection[BookieId] = ()) -> EnsembleHealth:
    health = EnsembleHealth(QuorumSpec(3, 3, 2))
    for name in parked:
        health.fail(name, a.FailureKind.GONE, "test")
    health.park_all()
    for name in failed:
        health.fail(name, a.FailureKind.SUSPECTED, "test")
    return health


@given(st.data(), st.permutations(NAMES), st.integers(1, 4))
def test_failed_members_leave_unless_too_few_in_sync_stay(
    data: st.DataObject, names: list[BookieId], least: int
) -> None:
    ensemble = tuple(names[: data.draw(st.integers(1, 6))])
    some = st.sets(st.sampled_from(ensemble))
    failed, parked, caught_up = data.draw(some), data.draw(some), data.draw(some)
    in_sync = tuple(b for b in ensemble if b in caught_up and b not in failed | parked)
    decision = ShrinkingMembership(least).decide(ensemble, in_sync, health_of(failed, parked))
    match decision:
        case Shrink(remaining):
            assert remaining == tuple(b for b in ensemble if b not in failed | parked)
            assert sum(b in caught_up for b in remaining) >= least
        case _:
            assert decision == ParkFailed()
            assert sum(b in caught_up for b in ensemble if b not in failed | parked) < least


@given(st.sets(st.sampled_from(NAMES[:3]), min_size=1))
def test_quorum_mode_replaces_failed_members_and_fixed_mode_keeps_them(
    failed: set[BookieId],
) -> None:
    ensemble = NAMES[:3]
    positions = tuple(p for p, b in enumerate(ensemble) if b in failed)
    assert ReplacingMembership(is_delayed=False).decide(ensemble, (), health_of(failed)) == Replace(
        positions
    )
    delayed = ReplacingMembership(is_delayed=True).decide(ensemble, (), health_of(failed))
    assert delayed == (Replace(positions) if len(failed) > 1 else None)
    assert FixedMembership().decide(ensemble, (), health_of(failed)) == ParkFailed()


def test_a_member_is_suspected_only_if_it_has_an_effect() -> None:
    a, b, c = (BookieId(name) for name in "abc")
    replacing = ReplacingMembership(is_delayed=False)
    for has_spare in (False, True):
        assert replacing.may_suspect(a, (), has_spare=has_spare) is has_spare
        assert not FixedMembership().may_suspect(a, (a, b, c), has_spare=has_spare)
    needed = [
        ShrinkingMembership(2).may_suspect(a, in_sync, has_spare=True)
        for in_sync in ((a, b), (a,), ())
    ]
    assert needed == [False, False, False]
    assert ShrinkingMembership(2).may_suspect(a, (a, b, c), has_spare=False)
    assert ShrinkingMembership(2).may_suspect(a, (b, c), has_spare=False), (
        "a member that catches up is not needed"
    )


@pytest.mark.parametrize(
    ("quorum", "options", "kind"),
    [
        (QuorumSpec(3, 3, 2), AppendOptions(), ReplacingMembership),
        (THREE_MIN_TWO, AppendOptions(), ShrinkingMembership),
        (THREE_MIN_TWO, AppendOptions(fixed_membership=True), FixedMembership),
        (QuorumSpec(3, 3, 2), AppendOptions(fixed_membership=True), FixedMembership),
    ],
)
def test_the_mode_and_the_options_choose_the_rule(
    quorum: QuorumSpec, options: AppendOptions, kind: type[Membership]
) -> None:
    assert type(membership_of(quorum, options)) is kind


@dataclass
class NamedAnswers:
    """Records by name which bookies were sent, and which stored, each batch, so that nothing must
    be moved.
    """

    members: Members
    lac: int = -1
    sent: dict[int, set[BookieId]] = field(default_factory=dict)
    stored: dict[int, set[BookieId]] = field(default_factory=dict)

    def keep(self, members: Members) -> None:
        self.members = members
        for names in (*self.sent.values(), *self.stored.values()):
            names.intersection_update(members)

    def confirm(self) -> None:
        while self.stored.get(self.lac + 1, set()) >= set(self.members):
            self.lac += 1
            del self.stored[self.lac], self.sent[self.lac]

    def unanswered(self, name: BookieId) -> int:
        owed = [first for first in self.sent if name in self.sent[first] - self.stored[first]]
        return sum(10 + first + BATCH_COST_BYTES for first in owed)


@given(st.data())
def test_answers_follow_their_bookies_when_members_change(data: st.DataObject) -> None:
    members: Members = NAMES[:3]
    pending, twin = UnsettledBatches(THREE_MIN_TWO), NamedAnswers(members)
    batches: list[UnsettledBatch] = []
    for _ in range(data.draw(st.integers(1, 30))):
        happening = data.draw(
            st.sampled_from(["add", "send", "store", "store", "change", "resume"])
        )
        position = data.draw(st.integers(0, len(members) - 1))
        name, first = members[position], data.draw(st.integers(0, max(0, len(batches) - 1)))
        if happening == "add":
            number = len(batches)
            batches.append(pending.add(EntryId(number), 1, 10 + number))
            twin.sent[number], twin.stored[number] = set(), set()
        elif (
            happening == "send"
            and first in twin.sent
            and name not in twin.sent[first] | twin.stored[first]
        ):
            pending.note_sent(batches[first], 1 << position)
            twin.sent[first].add(name)
        elif happening == "store" and first in twin.stored:
            assert pending.record(EntryId(first), position) == (name not in twin.stored[first])
            twin.stored[first].add(name)
        elif happening == "change":
            after = tuple(data.draw(st.permutations(NAMES)))[: data.draw(st.integers(1, 3))]
            sources = [members.index(b) if b in members else None for b in after]
            pending.reassign(sources, THREE_MIN_TWO.with_members(len(after)))
            members = after
            twin.keep(after)
        elif happening == "resume":
            pending.resume_position(position)
            for number, names in twin.sent.items():
                if name not in twin.stored[number]:
                    names.discard(name)
        pending.confirm()
        pending.settle(given_up=0)
        twin.confirm()
        assert pending.lac == twin.lac
        for batch in pending.unconfirmed:
            sets = twin.sent[batch.first_entry_id], twin.stored[batch.first_entry_id]
            masks = [sum(1 << p for p, b in enumerate(members) if b in names) for names in sets]
            assert [batch.sent, batch.stored] == masks
            assert batch.write_set == (1 << len(members)) - 1
        assert [pending.unanswered_bytes(p) for p in range(len(members))] == [
            twin.unanswered(b) for b in members
        ]


# -- random histories ------------------------------------------------------------------------------

IN_SYNC = [
    QuorumSpec(size, size, size, stripe, QuorumMode.IN_SYNC, least)
    for size, least, stripe in [(3, 2, 4), (3, 1, 4), (2, 1, 4), (2, 2, 4), (4, 2, 2)]
]
IN_SYNC_SEEDS = 60


@pytest.mark.parametrize("recoverers", [0, 1, 2])
@pytest.mark.parametrize("quorum", IN_SYNC, ids=str)
def test_every_in_sync_history_keeps_the_rules(quorum: QuorumSpec, recoverers: int) -> None:
    for seed in range(IN_SYNC_SEEDS):
        explore_in_sync(quorum, seed, recoverers=recoverers, options=AppendOptions())


def test_in_sync_histories_are_of_every_kind() -> None:
    caught_up, alone, died, lagged, confirmed = 0, 0, 0, 0, 0
    for seed in range(200):
        model = explore_in_sync(IN_SYNC[1], seed, recoverers=seed % 2, options=AppendOptions())
        caught_up += model.caught_up
        alone += any(len(fragment.ensemble) == 1 for fragment in model.stored.fragments)
        died += sum(bookie.is_dead for bookie in model.bookies.values()) > 2
        lagged += model.lagged
        confirmed += model.acknowledged > 3
    assert min(caught_up, alone, died, lagged, confirmed) > 5, (
        caught_up,
        alone,
        died,
        lagged,
        confirmed,
    )


def living(ensemble: tuple[BookieId, ...], health: EnsembleHealth) -> tuple[BookieId, ...]:
    return tuple(b for b in ensemble if not health.is_out(b))


def somebody_is_named_before_the_copy(patch: pytest.MonkeyPatch) -> None:
    def copy(self: InSyncModel, target: BookieId, first: EntryId, _entry: int) -> None:
        self.is_copying = False
        index = self.stored.fragment_index_of(first)
        is_open = self.stored.state is LedgerState.OPEN
        if is_open and target not in self.stored.fragments[index].ensemble:
            self.name_copy(target, index)

    patch.setattr(InSyncModel, "copy", copy)


def a_lone_survivor_is_refused(patch: pytest.MonkeyPatch) -> None:
    def decide(self: Any, ensemble: Any, in_sync: Any, health: EnsembleHealth) -> Decision:
        if len(in_sync) < max(2, self._min_in_sync):
            return ParkFailed()
        return Shrink(living(ensemble, health))

    patch.setattr(ShrinkingMembership, "decide", decide)


def the_last_in_sync_member_leaves(patch: pytest.MonkeyPatch) -> None:
    """Every live member stays, in sync or not; such a set may confirm."""

    def decide(self: Any, ensemble: Any, _in_sync: Any, health: EnsembleHealth) -> Decision:
        left = living(ensemble, health)
        return Shrink(left) if len(left) >= self._min_in_sync else ParkFailed()

    patch.setattr(ShrinkingMembership, "decide", decide)


def a_spare_replaces_the_last_in_sync_member(patch: pytest.MonkeyPatch) -> None:
    original = AppendProtocol._add_member

    def take_in(self: Any, bookie_id: BookieId, token: Any) -> list[a.AppendAction]:
        absent = next((b for b in self._ensemble if b in self._health.parked), None)
        if not self._is_steady or absent is None or bookie_id in self._ensemble or self.in_sync:
            return original(self, bookie_id, token)
        members = tuple(bookie_id if b == absent else b for b in self._ensemble)
        return list(self._store_ensemble(members, token))

    patch.setattr(AppendProtocol, "_add_member", take_in)


def a_member_that_catches_up_counts(patch: pytest.MonkeyPatch) -> None:
    def in_sync(self: Any) -> tuple[BookieId, ...]:
        return living(self._ensemble, self._health)

    patch.setattr(AppendProtocol, "in_sync", property(in_sync))


def the_set_shrinks_below_min_in_sync(patch: pytest.MonkeyPatch) -> None:
    def decide(_self: Any, ensemble: Any, in_sync: Any, health: EnsembleHealth) -> Decision:
        return Shrink(living(ensemble, health)) if in_sync else ParkFailed()

    patch.setattr(ShrinkingMembership, "decide", decide)


def too_few_members_confirm(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AppendProtocol, "lacks_in_sync", property(lambda _self: False))


def all_members_but_one_are_enough(patch: pytest.MonkeyPatch) -> None:
    original = UnsettledBatches.confirm

    def confirm(self: Any) -> bool:
        quorum = self._quorum
        if quorum.ack_quorum > 1:
            self._quorum = replace(quorum, ack_quorum=quorum.ack_quorum - 1, mode=QuorumMode.QUORUM)
        moved = original(self)
        self._quorum = quorum
        return moved

    patch.setattr(UnsettledBatches, "confirm", confirm)


def the_quorum_does_not_follow_the_members(patch: pytest.MonkeyPatch) -> None:
    """Safe, but hangs: the writer waits for members that left."""
    original = UnsettledBatches.reassign

    def reassign(self: Any, sources: Any, quorum: QuorumSpec) -> None:
        before = self._quorum
        original(self, sources, quorum)
        self._quorum = before

    patch.setattr(UnsettledBatches, "reassign", reassign)


def positions_stay_when_a_member_leaves(patch: pytest.MonkeyPatch) -> None:
    original = UnsettledBatches.reassign

    def reassign(self: UnsettledBatches, sources: list[int | None], quorum: QuorumSpec) -> None:
        same = [None if s is None else p for p, s in enumerate(sources)]
        original(self, same, quorum)

    patch.setattr(UnsettledBatches, "reassign", reassign)


def a_new_member_counts_as_complete(patch: pytest.MonkeyPatch) -> None:
    original = UnsettledBatches.reassign

    def reassign(self: Any, sources: list[int | None], quorum: QuorumSpec) -> None:
        original(self, sources, quorum)
        for batch in self._unconfirmed:
            batch.stored |= sum(1 << p for p, s in enumerate(sources) if s is None)

    patch.setattr(UnsettledBatches, "reassign", reassign)


def a_new_member_is_sent_no_unconfirmed_entries(patch: pytest.MonkeyPatch) -> None:
    """Safe, but hangs."""
    original = UnsettledBatches.reassign

    def reassign(self: Any, sources: list[int | None], quorum: QuorumSpec) -> None:
        original(self, sources, quorum)
        for batch in self._unconfirmed:
            batch.sent |= sum(1 << p for p, s in enumerate(sources) if s is None)

    patch.setattr(UnsettledBatches, "reassign", reassign)


def lagging_members_never_recover(patch: pytest.MonkeyPatch) -> None:
    """Safe, but hangs."""
    patch.setattr(EnsembleHealth, "is_lagging", lambda *_: False)
    original = EnsembleHealth.forgive

    def forgive(self: EnsembleHealth, bookie_id: BookieId) -> bool:
        failure = self._parked.get(bookie_id)
        is_late = failure is not None and failure.kind is a.FailureKind.LAGGING
        return not is_late and original(self, bookie_id)

    patch.setattr(EnsembleHealth, "forgive", forgive)


def a_member_that_caught_up_is_not_noticed(patch: pytest.MonkeyPatch) -> None:
    """Safe, but hangs: a member that joined never is in sync."""
    patch.setattr(AppendProtocol, "_metadata_seen", lambda *_: [])


IN_SYNC_BUGS: list[Patch] = [
    somebody_is_named_before_the_copy,
    a_lone_survivor_is_refused,
    the_last_in_sync_member_leaves,
    a_spare_replaces_the_last_in_sync_member,
    a_member_that_catches_up_counts,
    the_set_shrinks_below_min_in_sync,
    too_few_members_confirm,
    all_members_but_one_are_enough,
    the_quorum_does_not_follow_the_members,
    positions_stay_when_a_member_leaves,
    a_new_member_counts_as_complete,
    a_new_member_is_sent_no_unconfirmed_entries,
    lagging_members_never_recover,
    a_member_that_caught_up_is_not_noticed,
]


@pytest.mark.parametrize("bug", IN_SYNC_BUGS, ids=lambda bug: bug.__name__)
def test_every_seeded_in_sync_bug_shows(bug: Patch, monkeypatch: pytest.MonkeyPatch) -> None:
    bug(monkeypatch)
    for seed in range(BUG_SEEDS):
        quorum = IN_SYNC[seed % len(IN_SYNC)]
        try:
            explore_in_sync(quorum, seed, recoverers=seed % 2, options=AppendOptions())
        except (ViolationError, InvalidTransitionError, AssertionError):
            return
    pytest.fail(f"{bug.__name__} was not found in {BUG_SEEDS} histories")
