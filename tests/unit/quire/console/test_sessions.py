"""Logins of a console, their end, and the tokens of forms."""

import pytest

from quire.console.guard import SESSION_S, SESSIONS_MAX, Sessions
from quire.server.token_check import (
    ADDRESSES_MAX,
    LOGINS_OF_ADDRESS_MAX,
    LOGINS_PERIOD_S,
    TooManyLoginsError,
)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_session_ends_after_its_time_and_with_a_logout() -> None:
    clock = Clock()
    sessions = Sessions("secret", clock)
    first, second = sessions.log_in("secret", "a"), sessions.log_in("secret", "a")
    assert first
    assert second
    assert first != second
    assert sessions.get(first)
    assert sessions.get(second)
    sessions.log_out(first)
    assert sessions.get(first) is None
    clock.now_s = SESSION_S
    assert sessions.get(second) is None


def test_the_oldest_session_ends_when_there_are_too_many() -> None:
    sessions = Sessions("secret", Clock())
    ids = [sessions.log_in("secret", "a") for _ in range(SESSIONS_MAX + 1)]
    assert ids[0]
    assert sessions.get(ids[0]) is None
    assert ids[1]
    assert sessions.get(ids[1])


def test_a_wrong_token_is_refused_and_guessing_is_limited() -> None:
    clock = Clock()
    sessions = Sessions("secret", clock)
    for number in range(LOGINS_OF_ADDRESS_MAX):
        assert sessions.log_in(f"guess {number}", "a") is None
    with pytest.raises(TooManyLoginsError):
        sessions.log_in("secret", "a")
    assert sessions.log_in("secret", "b"), "others log in meanwhile"
    clock.now_s = LOGINS_PERIOD_S
    assert sessions.log_in("secret", "a")


def test_guesses_from_one_ipv6_network_are_those_of_one_client() -> None:
    sessions = Sessions("secret", Clock())
    for number in range(LOGINS_OF_ADDRESS_MAX):
        assert sessions.log_in("guess", f"2001:db8::{number:x}") is None
    with pytest.raises(TooManyLoginsError):
        sessions.log_in("secret", "2001:db8::ffff")
    assert sessions.log_in("secret", "2001:db8:0:1::1"), "others log in meanwhile"


def test_guesses_from_many_addresses_keep_no_other_out() -> None:
    sessions = Sessions("secret", Clock())
    for number in range(ADDRESSES_MAX + 1):
        assert sessions.log_in("guess", str(number)) is None
    assert sessions.log_in("secret", "b")


def test_without_a_token_no_login_is_possible() -> None:
    assert Sessions("", Clock()).log_in("", "a") is None


def test_a_form_token_is_of_one_holder_and_one_run() -> None:
    sessions = Sessions("secret", Clock())
    token = sessions.form_token("a")
    assert sessions.is_form_token("a", token)
    assert not sessions.is_form_token("b", token)
    assert not sessions.is_form_token("a", "")
    assert not Sessions("secret", Clock()).is_form_token("a", token)
