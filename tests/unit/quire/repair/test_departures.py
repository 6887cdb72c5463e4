"""When a bookie counts as gone: by how long it is missing, and by its stored state."""

from collections.abc import Mapping

import pytest

from metadata.ids import BookieId
from metadata.registry.registration import LIMBO_FEATURE, BookieRegistration
from metadata.repair.lifecycle import Lifecycle
from quire.repair.departures import LIMBO_REASON, Delays, Departures, DeparturesSeen, StateChange
from quire.repair.standing import Standing
from tests.support.sample_ledgers import bookies

A, B, C = bookies("abc")
KNOWN = (A, B, C)
DELAYS = Delays(lost_after_s=600.0, urgent_after_s=60.0)


def look(
    departures: Departures,
    now_s: float,
    registered: str,
    states: Mapping[BookieId, Lifecycle] | None = None,
    in_limbo: str = "",
    stopped: str = "",
) -> DeparturesSeen:
    up = {
        bookie: BookieRegistration(
            bookie, "host", 1, features=(LIMBO_FEATURE,) * (bookie in in_limbo)
        )
        for bookie in bookies(registered)
    }
    return departures.look(KNOWN, up, states or {}, bookies(stopped), DELAYS, now_s)


def test_a_missing_bookie_is_lost_after_the_delay() -> None:
    departures = Departures()
    assert look(departures, 0.0, "abc").due_s is None
    seen = look(departures, 100.0, "ab")
    assert (seen.changes, seen.urgent, seen.due_s) == ((), (), 160.0)
    assert departures.away(seen.standings) == {C: 100.0}
    seen = look(departures, 160.0, "ab")
    assert (seen.changes, seen.urgent, seen.due_s) == ((), (C,), 700.0)
    assert seen.standings.of(C) is Standing.GOOD
    seen = look(departures, 700.0, "ab")
    assert [(change.bookie_id, change.to) for change in seen.changes] == [(C, Lifecycle.LOST)]
    assert seen.standings.of(C) is Standing.GONE
    assert departures.away(seen.standings) == {}
    assert seen.urgent == ()
    assert seen.due_s is None


def test_a_bookie_that_returns_in_time_starts_the_delay_again() -> None:
    departures = Departures()
    look(departures, 0.0, "ab")
    look(departures, 599.0, "abc")
    look(departures, 600.0, "ab")
    assert look(departures, 1_199.0, "ab").changes == ()
    assert len(look(departures, 1_200.0, "ab").changes) == 1


def test_a_bookie_that_stopped_in_order_is_never_urgent() -> None:
    departures = Departures()
    seen = look(departures, 0.0, "a", stopped="c")
    assert (seen.urgent, seen.due_s) == ((), 60.0)
    seen = look(departures, 60.0, "a", stopped="c")
    assert (seen.urgent, seen.due_s) == ((B,), 600.0)
    seen = look(departures, 600.0, "a", stopped="c")
    assert [(change.bookie_id, change.to) for change in seen.changes] == [
        (B, Lifecycle.LOST),
        (C, Lifecycle.LOST),
    ]


def test_an_orderly_stop_that_a_start_replaced_does_not_count() -> None:
    departures = Departures()
    look(departures, 0.0, "ab", stopped="c")
    assert look(departures, 100.0, "ab", stopped="c").urgent == ()
    assert look(departures, 105.0, "ab").urgent == (C,)


def test_several_bookies_wait_for_the_delay_too() -> None:
    departures = Departures()
    look(departures, 0.0, "a")
    assert look(departures, 599.0, "a").changes == ()
    assert len(look(departures, 600.0, "a").changes) == 2


def test_a_lost_bookie_that_is_registered_is_active_again() -> None:
    seen = look(Departures(), 0.0, "abc", {B: Lifecycle.LOST})
    assert seen.changes == (
        StateChange(B, Lifecycle.LOST, Lifecycle.ACTIVE, "it is registered again"),
    )
    assert seen.standings.of(B) is Standing.GOOD


def test_a_lost_bookie_is_gone_for_a_new_auditor_at_once() -> None:
    seen = look(Departures(), 0.0, "ac", {B: Lifecycle.LOST})
    assert seen.changes == ()
    assert seen.standings.of(B) is Standing.GONE


def test_a_draining_bookie_keeps_its_state_and_is_gone_once_it_is_missing() -> None:
    departures, states = Departures(), {B: Lifecycle.DRAINING}
    assert look(departures, 0.0, "abc", states).standings.of(B) is Standing.DRAINING
    look(departures, 10.0, "ac", states)
    seen = look(departures, 609.0, "ac", states)
    assert seen.standings.of(B) is Standing.DRAINING
    assert seen.urgent == (B,)
    seen = look(departures, 610.0, "ac", states)
    assert seen.standings.of(B) is Standing.GONE
    assert seen.changes == ()


def test_a_removed_bookie_is_gone_even_if_it_is_registered() -> None:
    seen = look(Departures(), 0.0, "abc", {B: Lifecycle.REMOVED})
    assert seen.standings.of(B) is Standing.GONE
    assert seen.changes == ()


@pytest.mark.parametrize("state", [Lifecycle.ACTIVE, Lifecycle.DRAINING, Lifecycle.LOST])
def test_a_bookie_that_registers_in_limbo_gets_that_state(state: Lifecycle) -> None:
    seen = look(Departures(), 0.0, "abc", {B: state}, in_limbo="b")
    assert seen.changes == (StateChange(B, state, Lifecycle.LIMBO, LIMBO_REASON),)
    assert seen.standings.of(B) is Standing.UNPROVEN
    assert not seen.standings.has_copy(B)


@pytest.mark.parametrize("state", [Lifecycle.LIMBO, Lifecycle.DRAINED, Lifecycle.REMOVED])
def test_a_bookie_in_limbo_that_is_emptied_keeps_its_state(state: Lifecycle) -> None:
    assert look(Departures(), 0.0, "abc", {B: state}, in_limbo="b").changes == ()


def test_a_bookie_in_limbo_is_unproven_while_it_is_away_and_then_lost() -> None:
    departures, states = Departures(), {B: Lifecycle.LIMBO}
    assert look(departures, 0.0, "ac", states).standings.of(B) is Standing.UNPROVEN
    seen = look(departures, 60.0, "ac", states)
    assert (seen.changes, seen.urgent) == ((), (B,))
    assert seen.standings.of(B) is Standing.UNPROVEN
    seen = look(departures, 600.0, "ac", states)
    assert [(change.bookie_id, change.to) for change in seen.changes] == [(B, Lifecycle.LOST)]
    assert seen.standings.of(B) is Standing.GONE
