"""Which copies count: by the stored state of a bookie, and by whether it is registered."""

import pytest

from metadata.ids import BookieId
from metadata.repair.lifecycle import Lifecycle
from quire.repair.standing import Standing, Standings, standing_of
from tests.support.sample_ledgers import bookies, standings

A, B, C = bookies("abc")


@pytest.mark.parametrize(
    ("state", "if_up", "if_away"),
    [
        (Lifecycle.ACTIVE, Standing.GOOD, Standing.GOOD),
        (Lifecycle.DRAINING, Standing.DRAINING, Standing.GONE),
        (Lifecycle.DRAINED, Standing.DRAINING, Standing.GONE),
        (Lifecycle.LOST, Standing.GOOD, Standing.GONE),
        (Lifecycle.LIMBO, Standing.UNPROVEN, Standing.GONE),
        (Lifecycle.REMOVED, Standing.GONE, Standing.GONE),
        (Lifecycle.UNREADABLE, Standing.GOOD, Standing.GONE),
    ],
)
def test_the_standing_follows_from_the_state(
    state: Lifecycle, if_up: Standing, if_away: Standing
) -> None:
    """Not being registered is not enough for a bookie that is active (9.5)."""
    assert (standing_of(state, is_up=True), standing_of(state, is_up=False)) == (if_up, if_away)


def test_a_bookie_that_is_not_named_is_good() -> None:
    assert Standings().of(A) is Standing.GOOD
    assert standings(gone="a").of(B) is Standing.GOOD


def test_for_urgent_ledgers_a_missing_bookie_is_gone_unless_it_stopped_in_order() -> None:
    """Rule 9.6."""
    urgent = Standings({C: Standing.DRAINING}, registered=(A, C), stopped=(B,))
    assert [urgent.of(bookie) for bookie in (A, B, C)] == [
        Standing.GOOD,
        Standing.GOOD,
        Standing.DRAINING,
    ]
    assert urgent.of(BookieId("d")) is Standing.GONE


def test_copies_on_draining_bookies_count_and_those_in_limbo_do_not() -> None:
    known = standings(gone="a", draining="b", unproven="c")
    assert [known.has_copy(bookie) for bookie in bookies("abcd")] == [False, True, False, True]


def test_more_bookies_may_be_gone() -> None:
    before = Standings({A: Standing.DRAINING}, registered=(A, B), stopped=(C,))
    after = before.with_gone((A,))
    assert [after.of(bookie) for bookie in (A, B, C)] == [
        Standing.GONE,
        Standing.GOOD,
        Standing.GOOD,
    ]
    assert after.of(BookieId("d")) is Standing.GONE, "the registrations are kept"
    assert before.of(A) is Standing.DRAINING
