"""Transitions of ledger metadata (rules 1.5, 5.1, 6.1, 7.1, 7.5 and 9.1)."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import InvalidTransitionError
from metadata.ids import NO_ENTRY, EntryId
from metadata.ledgers.ledger_metadata import (
    UNCLAIMED_NAME,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumMode,
    QuorumSpec,
)
from tests.support.metadata.samples import A, B, C, D, E, open_ledger, token
from tests.support.metadata.strategies import ledger_metadata


def test_an_ensemble_change_opens_a_new_fragment() -> None:
    changed = open_ledger().with_ensemble_change(EntryId(10), (A, B, D), token(9))
    assert changed.fragments == (
        Fragment(EntryId(0), (A, B, C)),
        Fragment(EntryId(10), (A, B, D)),
    )
    assert changed.update_token == token(9)


def test_an_ensemble_change_at_the_first_entry_rewrites_the_last_fragment() -> None:
    changed = open_ledger().with_ensemble_change(EntryId(0), (A, B, D), token(9))
    assert changed.fragments == (Fragment(EntryId(0), (A, B, D)),)


def test_an_ensemble_change_before_the_last_fragment_is_refused() -> None:
    ledger = open_ledger().with_ensemble_change(EntryId(10), (A, B, D), token(9))
    with pytest.raises(InvalidTransitionError):
        ledger.with_ensemble_change(EntryId(9), (A, B, E), token(10))


def test_state_only_moves_forward() -> None:
    ledger = open_ledger()
    recovering = ledger.with_recovery_begun(token(3))
    closed = recovering.with_recovered((), EntryId(4), 40, token(4))
    assert (recovering.state, closed.state) == (LedgerState.IN_RECOVERY, LedgerState.CLOSED)
    for state in (recovering, closed):
        with pytest.raises(InvalidTransitionError):
            state.with_recovery_begun(token(5))
        with pytest.raises(InvalidTransitionError):
            state.with_closed(EntryId(4), 40, token(5))
        with pytest.raises(InvalidTransitionError):
            state.with_ensemble_change(EntryId(9), (A, B, D), token(5))
    for state in (ledger, closed):
        with pytest.raises(InvalidTransitionError):
            state.with_recovered((), EntryId(4), 40, token(5))


def test_an_empty_ledger_closes_at_no_entry() -> None:
    closed = open_ledger().with_closed(NO_ENTRY, 0, token(3))
    assert (closed.last_entry_id, closed.length) == (NO_ENTRY, 0)


def test_recovery_keeps_older_fragments_as_stored_now() -> None:
    ledger = open_ledger().with_ensemble_change(EntryId(10), (A, B, D), token(3))
    repaired = ledger.with_fragment(0, Fragment(EntryId(0), (E, B, C)), token(4))
    recovering = repaired.with_recovery_begun(token(5))
    found = (Fragment(EntryId(10), (A, B, D)), Fragment(EntryId(15), (A, B, C)))
    closed = recovering.with_recovered(found, EntryId(20), 99, token(6))
    assert closed.fragments == (Fragment(EntryId(0), (E, B, C)), *found)


def test_recovery_changes_nothing_below_the_last_fragment() -> None:
    ledger = open_ledger().with_ensemble_change(EntryId(10), (A, B, D), token(3))
    recovering = ledger.with_recovery_begun(token(5))
    with pytest.raises(InvalidTransitionError):
        recovering.with_recovered((Fragment(EntryId(5), (A, B, E)),), EntryId(20), 99, token(6))


def test_a_repair_does_not_change_the_last_fragment_of_an_open_ledger() -> None:
    ledger = open_ledger().with_ensemble_change(EntryId(10), (A, B, D), token(3))
    swapped = Fragment(EntryId(10), (A, B, E))
    with pytest.raises(InvalidTransitionError):
        ledger.with_fragment(1, swapped, token(4))
    closed = ledger.with_closed(EntryId(12), 99, token(4))
    assert closed.with_fragment(1, swapped, token(5)).last_fragment == swapped
    with pytest.raises(InvalidTransitionError):
        closed.with_fragment(0, Fragment(EntryId(1), (A, B, E)), token(5))


def test_names_finds_members_and_incoming() -> None:
    ledger = open_ledger(7, Fragment(EntryId(0), (A, B, C), (D,)))
    assert [ledger.names(x) for x in (A, D, E)] == [True, True, False]


@given(ledger_metadata(), st.integers(0, 2**63 - 2))
def test_fragment_of_agrees_with_a_scan(metadata: LedgerMetadata, entry: int) -> None:
    expected = [f for f in metadata.fragments if f.first_entry_id <= entry][-1]
    assert metadata.fragment_of(EntryId(entry)) == expected


@pytest.mark.parametrize("sizes", [(2, 3, 2), (3, 2, 3), (1, 1, 0)])
def test_quorum_sizes_must_be_ordered(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="ensemble >= write >= ack"):
        QuorumSpec(*sizes)


IN_SYNC = QuorumSpec(3, 3, 3, 4, QuorumMode.IN_SYNC, 2)


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ({"stripe_entries": 0}, "stripe_entries"),
        ({"ack_quorum": 2}, "equal numbers"),
        ({"write_quorum": 2, "ack_quorum": 2}, "equal numbers"),
        ({"min_in_sync": 0}, "min_in_sync must be 1 to 3"),
        ({"min_in_sync": 4}, "min_in_sync must be 1 to 3"),
        ({"replica_lag_time_max_ms": 0}, "at least 1 ms"),
    ],
)
def test_limits_of_an_in_sync_ledger(bad: dict[str, int], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        replace(IN_SYNC, **bad)  # type: ignore[arg-type]


def test_the_smallest_values_of_a_quorum() -> None:
    least = QuorumSpec(1, 1, 1, 1, QuorumMode.IN_SYNC, 1, 1)
    assert least.with_members(1) == least
    assert replace(IN_SYNC, min_in_sync=3).with_members(2).min_in_sync == 2
    assert replace(QuorumSpec(3, 3, 2), min_in_sync=0).min_in_sync == 0, "only in-sync mode has it"


def test_a_fragment_has_the_quorum_of_its_members_only_in_sync() -> None:
    two, three = Fragment(EntryId(0), (A, B)), Fragment(EntryId(5), (A, B, C))
    ledger = replace(open_ledger(7, two, three), quorum=IN_SYNC)
    assert ledger.quorum_of(two) == QuorumSpec(2, 2, 2, 4, QuorumMode.IN_SYNC, 2)
    assert ledger.quorum_of(three) == ledger.quorum
    assert open_ledger().quorum_of(two) == open_ledger().quorum


def test_members_of_every_fragment_are_in_sync() -> None:
    members = [(A, B, C), (A, B, D), (D, B, A)]
    fragments = [Fragment(EntryId(10 * i), each) for i, each in enumerate(members)]
    assert replace(open_ledger(7, *fragments), quorum=IN_SYNC).in_sync_members == (B, A)
    assert replace(open_ledger(7, fragments[0]), quorum=IN_SYNC).in_sync_members == (A, B, C)


@pytest.mark.parametrize("missing", [0, 1, 7, 18])
def test_a_member_that_one_of_many_fragments_lacks_is_not_in_sync(missing: int) -> None:
    fragments = [
        Fragment(EntryId(10 * i), (A, B) if i == missing else (A, B, C)) for i in range(20)
    ]
    assert replace(open_ledger(7, *fragments), quorum=IN_SYNC).in_sync_members == (A, B)


def test_names_finds_what_was_given_up() -> None:
    ledger = open_ledger().with_ensemble_change(EntryId(10), (A, B, D), token(3))
    closed = ledger.with_recovery_begun(token(4)).with_given_up(1, 50, token(5))
    assert [closed.names(bookie) for bookie in (A, C, D, E)] == [True, True, True, False]


@pytest.mark.parametrize("index", [0, 1, 2])
def test_a_ledger_ends_before_the_first_fragment_that_is_given_up(index: int) -> None:
    fragments = [Fragment(EntryId(10 * i), (A, B, C)) for i in range(3)]
    ledger = open_ledger(7, *fragments).with_recovery_begun(token(3))
    closed = ledger.with_given_up(index, 50, token(4))
    assert (closed.state, closed.length) == (LedgerState.CLOSED, 50)
    assert closed.update_token == token(4)
    assert closed.last_entry_id == 10 * index - 1
    assert closed.fragments == tuple(fragments[: max(index, 1)])
    assert closed.given_up == tuple(fragments[index:])
    with pytest.raises(InvalidTransitionError):
        open_ledger(7, *fragments).with_given_up(index, 50, token(4))


def test_every_change_has_its_own_token() -> None:
    ledger = open_ledger()
    begun = ledger.with_recovery_begun(token(9))
    assert (begun.state, begun.update_token) == (LedgerState.IN_RECOVERY, token(9))
    changed = ledger.with_ensemble_change(EntryId(5), (A, B, D), token(9))
    closed = ledger.with_closed(EntryId(5), 0, token(9))
    repaired = changed.with_fragment(0, Fragment(EntryId(0), (A, B, E)), token(10))
    recovered = begun.with_recovered((), EntryId(5), 0, token(10))
    tokens = [metadata.update_token for metadata in (changed, closed, repaired, recovered)]
    assert tokens == [token(9), token(9), token(10), token(10)]


def test_a_ledger_is_unclaimed_while_it_is_open_and_says_so() -> None:
    said = {UNCLAIMED_NAME: b""}
    ledger = open_ledger(3, Fragment(EntryId(0), (A, B, C)))
    assert not ledger.is_unclaimed
    unclaimed = replace(ledger, custom=said)
    assert unclaimed.is_unclaimed
    assert not unclaimed.with_recovery_begun(token(5)).is_unclaimed


def test_lost_entries_come_with_a_new_token() -> None:
    closed = open_ledger(3, Fragment(EntryId(0), (A, B, C))).with_closed(EntryId(9), 90, token(5))
    assert closed.with_lost(((0, 3),), 7, token(6)).update_token == token(6)


def test_a_fragment_ends_before_the_next_one_and_with_the_ledger() -> None:
    ledger = open_ledger().with_ensemble_change(EntryId(10), (A, B, D), token(9))
    assert [ledger.last_entry_of(index) for index in (0, 1)] == [9, None]
    closed = ledger.with_closed(EntryId(14), 15, token(10))
    assert [closed.last_entry_of(index) for index in (0, 1)] == [9, 14]
    empty = ledger.with_closed(EntryId(9), 10, token(10))
    assert [empty.last_entry_of(index) for index in (0, 1)] == [9, 9]


def test_a_member_catches_up_with_the_older_fragments_that_do_not_name_it() -> None:
    ledger = open_ledger()
    for first, members in ((10, (A, B, D)), (20, (A, C, D)), (30, (A, B, D))):
        ledger = ledger.with_ensemble_change(EntryId(first), members, token(9))
    assert [f.first_entry_id for f in ledger.fragments_without(B)] == [20]
    assert [f.first_entry_id for f in ledger.fragments_without(D)] == [0]
    assert [f.first_entry_id for f in ledger.fragments_without(E)] == [20, 10, 0]
    assert ledger.in_sync_members == (A,)
