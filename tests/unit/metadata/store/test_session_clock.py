"""Lease clock: the session expires by our own clock, counted from requests that were answered."""

import asyncio

import pytest

from metadata.store.interface import SessionState
from metadata.store.session_clock import SessionClock
from metadata.store.zookeeper.session import LinkDown, LinkUp, SessionLost, try_timeout_s

CONNECTED, SUSPENDED, EXPIRED, CLOSED = SessionState


def lease() -> tuple[SessionClock, list[SessionState]]:
    states: list[SessionState] = []
    made = SessionClock(10.0, 0.0)
    made.on_session(states.append)
    made.note_link(LinkUp(1, 4.0, 1.0))
    return made, states


def test_the_server_decides_the_timeout() -> None:
    made, states = lease()
    assert made.ends_s == 5.0
    assert made.session_id == 1
    assert states == [CONNECTED]


def test_the_lease_expires_without_a_message_from_the_server() -> None:
    made, states = lease()
    made.note_link(LinkDown())
    made.check(4.9)
    assert states == [CONNECTED, SUSPENDED]
    made.check(5.0)
    made.check(6.0)
    assert states == [CONNECTED, SUSPENDED, EXPIRED]


def test_the_state_is_over_before_it_is_reported() -> None:
    """A delay of the loop, or of the process, delays `check`."""
    made, states = lease()
    assert made.state_at(4.9) is CONNECTED
    assert made.state_at(5.0) is EXPIRED
    assert states == [CONNECTED]
    made.contacted(3.0, 5.0)
    assert made.state_at(6.9) is CONNECTED, "the server still had the session"
    made.close()
    assert made.state_at(9.0) is CLOSED


def test_an_answer_counts_from_its_sending() -> None:
    made, states = lease()
    made.contacted(3.0, 4.5)
    made.contacted(2.0, 4.6)
    assert made.ends_s == 7.0
    made.check(6.9)
    assert states == [CONNECTED]


def test_a_silent_connection_expires_and_may_return() -> None:
    made, states = lease()
    made.check(5.0)
    made.contacted(4.0, 9.0)
    assert states == [CONNECTED, EXPIRED]
    made.contacted(9.0, 9.1)
    assert states == [CONNECTED, EXPIRED, CONNECTED]


def test_a_late_answer_over_a_lost_connection_revives_nothing() -> None:
    made, states = lease()
    made.note_link(LinkDown())
    made.check(5.0)
    made.contacted(4.9, 5.1)
    assert states[-1] is EXPIRED


def test_a_reconnect_keeps_or_replaces_the_session() -> None:
    made, states = lease()
    made.note_link(LinkDown())
    made.note_link(LinkUp(1, 4.0, 3.0))
    assert states == [CONNECTED, SUSPENDED, CONNECTED]
    made.note_link(LinkDown())
    made.note_link(SessionLost())
    made.note_link(LinkUp(2, 4.0, 4.0))
    assert states[3:] == [SUSPENDED, EXPIRED, CONNECTED]
    made.note_link(LinkUp(3, 4.0, 5.0))
    assert states[6:] == [EXPIRED, CONNECTED]


def test_a_service_that_never_answered_has_no_session_to_lose() -> None:
    made = SessionClock(1.0, 0.0)
    made.note_link(SessionLost())
    made.check(100.0)
    assert made.state is SUSPENDED


async def test_a_failing_callback_does_not_end_the_heartbeat_that_checks() -> None:
    reports: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, what: reports.append(what["exception"]))

    def fail(state: SessionState) -> None:
        raise LookupError(state)

    made = SessionClock(10.0, 0.0)
    made.on_session(fail)
    made.note_link(LinkUp(1, 4.0, 1.0))
    made.check(5.0)
    assert made.state is EXPIRED
    assert len(reports) == 1


def test_closed_is_final() -> None:
    made, states = lease()
    made.close()
    made.note_link(LinkUp(2, 4.0, 3.0))
    made.check(100.0)
    assert states == [CONNECTED, CLOSED]


def test_all_attempts_fit_into_half_a_session() -> None:
    for hosts in (1, 3, 5):
        assert hosts * try_timeout_s(10.0, hosts) <= 5.0


def test_a_server_is_silent_from_its_last_answer() -> None:
    made, _ = lease()
    silent_after_s = 4.0 * 2 / 3
    assert made.silent_s == pytest.approx(1.0 + silent_after_s)
    made.contacted(3.0, 3.5)
    assert made.ends_s == 7.0
    assert made.silent_s == pytest.approx(3.5 + silent_after_s)
    made.note_link(LinkDown())
    made.note_link(LinkUp(1, 4.0, 9.0))
    assert made.silent_s == pytest.approx(9.0 + silent_after_s)


def test_before_the_first_connection_the_count_is_from_the_beginning() -> None:
    made = SessionClock(10.0, 2.0)
    assert made.silent_s == pytest.approx(2.0 + 10.0 * 2 / 3)


def test_a_connection_that_breaks_later_does_not_revive_an_expired_session() -> None:
    made, states = lease()
    made.check(5.0)
    made.note_link(LinkDown())
    assert states == [CONNECTED, EXPIRED]
    made.contacted(4.9, 5.1)
    assert made.state is EXPIRED


def test_a_lost_session_expires_at_once() -> None:
    made, states = lease()
    made.note_link(LinkDown())
    made.note_link(SessionLost())
    assert states == [CONNECTED, SUSPENDED, EXPIRED]


def test_an_answer_at_the_end_of_the_session_is_too_late() -> None:
    made, _ = lease()
    made.check(5.0)
    made.contacted(4.0, 8.0)
    assert made.ends_s == 8.0
    assert made.state is EXPIRED


def test_an_answer_after_the_close_opens_nothing() -> None:
    made, _ = lease()
    made.close()
    made.contacted(2.0, 2.1)
    assert made.state is CLOSED
