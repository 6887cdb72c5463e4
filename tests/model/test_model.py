"""Tests of the model: the smallest configurations keep the rules, and seeded bugs are found.

Leaves the larger configurations and the whole list to `python -m tests.model`.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from bookie.storage.bookie_storage import BookieStorage
from ledger_client.protocol import recovery_events as r
from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.recovery import RecoveryProtocol
from metadata.ledgers.ledger_store import LedgerStore
from tests.model import (
    bugs,
    bugs_append,
    bugs_bookie,
    bugs_in_sync,
    bugs_recovery,
    scopes,
    scopes_in_sync,
)
from tests.model.__main__ import look_for, show_bug
from tests.model.freezing import MetadataPool, clone, freeze
from tests.model.patches import Patches
from tests.model.search import Search
from tests.model.words import Scope
from tests.model.world import Draft
from tests.scenarios.words import parse_bookies

PATCHED: tuple[tuple[type, str], ...] = (
    (AppendProtocol, "_advance"),
    (AppendProtocol, "_update_ended"),
    (LedgerStore, "compare_and_set"),
    (BookieStorage, "fence"),
    (Draft, "compare_and_set"),
)
QUICK = (
    bugs_append.confirmed_during_a_change,
    bugs_append.answers_of_the_replaced_count,
    bugs_recovery.one_fence_is_enough_and_reads_do_not_fence,
    bugs_recovery.one_negative_is_enough,
    bugs_append.the_writer_stores_metadata_blind,
    bugs_bookie.a_fence_is_lost_in_a_crash,
    bugs_append.an_unknown_outcome_is_taken_for_success,
    bugs_append.the_resend_is_skipped,
    bugs_in_sync.all_but_one_are_enough,
    bugs_in_sync.answers_stay_where_they_were,
    bugs_in_sync.a_lone_survivor_is_refused,
    bugs_in_sync.the_set_shrinks_below_the_minimum,
    bugs_in_sync.a_member_is_in_sync_before_its_copy_is_whole,
)


@pytest.mark.parametrize("scope", scopes.SMALL, ids=lambda scope: scope.name)
def test_every_world_keeps_the_rules(scope: Scope) -> None:
    found = Search(scope).run()
    assert found.violation is None, "\n".join(found.violation.transcript)
    assert found.is_complete
    assert found.resting > 0


@pytest.mark.long
def test_a_swap_keeps_the_last_in_sync_member() -> None:
    assert Search(scopes_in_sync.THREE_LEAVE).run().violation is None


@pytest.mark.parametrize("apply", QUICK, ids=lambda apply: apply.__name__)
def test_a_seeded_bug_is_found(apply: object) -> None:
    bug = next(each for each in bugs.BUGS if each.apply is apply)
    violation = look_for(bug)[-1].violation
    assert violation is not None
    assert len(violation.transcript) > 1


def test_an_unknown_bug_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert show_bug("nothing") == 2
    assert "there are" in capsys.readouterr().out


def test_an_exploration_is_repeatable() -> None:
    first, second = Search(scopes.ONE_ACK).run(), Search(scopes.ONE_ACK).run()
    assert (first.states, first.transitions, first.depth) == (
        second.states,
        second.transitions,
        second.depth,
    )


def test_mirror_images_are_explored_once() -> None:
    whole = Search(scopes.ONE_ACK).run()
    merged = Search(replace(scopes.ONE_ACK, is_mirrored=True)).run()
    assert merged.violation is None
    assert merged.is_complete
    assert merged.depth == whole.depth
    assert whole.states / 2 <= merged.states < 0.6 * whole.states


def test_a_protocol_that_prefers_a_bookie_cannot_be_mirrored() -> None:
    original = RecoveryProtocol.handle

    def handle(self: RecoveryProtocol, event: r.RecoveryEvent) -> list[r.RecoveryAction]:
        is_of_c = isinstance(event, r.FenceAnswered) and event.bookie_id == "c"
        return [] if is_of_c else original(self, event)

    patches = Patches()
    patches.set(RecoveryProtocol, "handle", handle)
    try:
        violation = Search(replace(scopes.ONE_ACK, is_mirrored=True)).run().violation
    finally:
        patches.undo()
    assert violation is not None
    assert "not treated as equal" in violation.what


def test_cut_explorations_continue_with_random_walks() -> None:
    cut = replace(scopes.ONE_ACK, states_max=300, walks=20)
    found = Search(cut).run()
    assert found.violation is None
    assert not found.is_complete
    assert (found.walks, found.whole_depth) == (20, found.depth)
    assert found.walk_depth > found.whole_depth > 1
    assert f"all of depth {found.whole_depth} reached" in found.line()


@pytest.mark.parametrize(
    ("apply", "scope", "what"),
    [
        (bugs_recovery.one_negative_is_enough, scopes.ONE_ACK, "1 were acknowledged"),
        (bugs_recovery.the_lac_advances_in_write_back, scopes.PAIR_QUICK, "a bookie reports LAC"),
    ],
    ids=["where it rests", "on its way"],
)
def test_a_walk_finds_a_bug_beyond_the_cut(
    apply: Callable[[Patches], None], scope: Scope, what: str
) -> None:
    patches = Patches()
    apply(patches)
    try:
        cut = replace(scope, states_max=300)
        assert Search(cut).run().violation is None
        violation = Search(replace(cut, walks=300)).run().violation
    finally:
        patches.undo()
    assert violation is not None
    assert what in violation.what
    assert len(violation.transcript) > 10


def test_every_bug_is_undone() -> None:
    for bug in bugs.BUGS:
        patches = Patches()
        owners = [(owner, name, owner.__dict__[name]) for owner, name in PATCHED]
        bug.apply(patches)
        patches.undo()
        assert all(owner.__dict__[name] is value for owner, name, value in owners)


def test_a_copy_is_equal_and_independent() -> None:
    writer = scopes.first_parts(scopes.CHANGE).writer
    pool = MetadataPool()
    copied = clone(writer, {})
    assert freeze(copied, pool) == freeze(writer, pool)
    copied._pending.lac = 5  # type: ignore[attr-defined]
    assert freeze(copied, pool) != freeze(writer, pool)
    assert writer.lac == -1
    assert parse_bookies("a,b,c") == writer.metadata.last_fragment.ensemble
