"""The list of lost entries: joined, ascending, and never shorter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import InvalidTransitionError
from metadata.ids import ENTRY_ID_MAX, EntryId
from metadata.ledgers.lost_entries import (
    LOST_RANGES_MAX,
    LostRange,
    next_range,
    range_of,
    why_invalid,
    with_ranges,
)
from tests.support.metadata.samples import open_ledger, token

LAST = EntryId(40)


def lost(first: int, last: int, accepted_ms: int = 1) -> LostRange:
    return LostRange(EntryId(first), EntryId(last), accepted_ms)


@given(st.lists(st.lists(st.integers(0, LAST), max_size=12, unique=True), max_size=4))
def test_the_list_agrees_with_a_set_of_entries(steps: list[list[int]]) -> None:
    known: tuple[LostRange, ...] = ()
    first_accepted: dict[int, int] = {}
    for now, bounds in enumerate(steps):
        ordered = sorted(bounds)
        found = list(zip(ordered[::2], ordered[1::2], strict=False))
        known = with_ranges(known, found, now)
        for first, last in found:
            for entry_id in range(first, last + 1):
                first_accepted.setdefault(entry_id, now)
        assert why_invalid(known, LAST) == ""
        for entry_id in range(LAST + 1):
            there = range_of(known, entry_id)
            assert (None if there is None else there.accepted_ms) == first_accepted.get(entry_id)
            after = next_range(known, entry_id)
            firsts = [
                lost_range.first_entry_id
                for lost_range in known
                if lost_range.first_entry_id > entry_id
            ]
            assert (None if after is None else after.first_entry_id) == min(firsts, default=None)


def test_touching_ranges_are_joined_if_they_were_accepted_together() -> None:
    known = with_ranges((), [(3, 5), (6, 8)], 1)
    assert known == (lost(3, 8),)
    assert with_ranges(known, [(2, 9)], 1) == (lost(2, 9),)
    assert with_ranges(known, [(2, 9)], 4) == (lost(2, 2, 4), lost(3, 8), lost(9, 9, 4))


def test_a_range_after_the_end_is_never_joined() -> None:
    known = with_ranges((), [(30, LAST), (LAST + 1, ENTRY_ID_MAX)], 1)
    assert known == (lost(30, LAST), lost(LAST + 1, ENTRY_ID_MAX))
    assert why_invalid(known, LAST) == ""
    assert known[1].is_after_the_end


def test_the_end_of_a_ledger_stays() -> None:
    ledger = open_ledger().with_closed(LAST, 100, token(3))
    changed = ledger.with_lost([(0, LAST)], 9, token(4))
    assert (changed.last_entry_id, changed.length) == (LAST, 100)
    assert changed.fragments == ledger.fragments
    assert changed.lost_range_of(LAST) == lost(0, LAST, 9)


def test_only_a_closed_ledger_has_lost_entries() -> None:
    for ledger in (open_ledger(), open_ledger().with_recovery_begun(token(3))):
        with pytest.raises(InvalidTransitionError):
            ledger.with_lost([(0, 1)], 9, token(4))


def test_no_entry_beyond_the_end_and_not_too_many_ranges() -> None:
    ledger = open_ledger().with_closed(EntryId(3 * LOST_RANGES_MAX), 100, token(3))
    with pytest.raises(InvalidTransitionError, match="beyond the ledger's last entry"):
        ledger.with_lost([(0, 3 * LOST_RANGES_MAX + 1)], 9, token(4))
    many = [(2 * i, 2 * i) for i in range(LOST_RANGES_MAX + 1)]
    assert len(ledger.with_lost(many[:-1], 9, token(4)).lost) == LOST_RANGES_MAX
    with pytest.raises(InvalidTransitionError, match="delete the ledger"):
        ledger.with_lost(many, 9, token(4))
