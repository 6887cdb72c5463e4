"""Transitions of ledger metadata (rules 1.5, 5.1, 6.1, 7.1, 7.5 and 9.1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import InvalidTransitionError
from metadata.ids import NO_ENTRY, EntryId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState, QuorumSpec
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
