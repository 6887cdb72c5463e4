"""Who hears of what, and until when."""

import pytest

from metadata.callbacks import Callbacks


def test_all_are_told_in_order_until_they_cancel() -> None:
    callbacks = Callbacks[str]()
    heard: list[tuple[int, str]] = []
    first = callbacks.add(lambda news: heard.append((1, news)))
    callbacks.add(lambda news: heard.append((2, news)))
    callbacks.tell("a")
    first()
    first()
    callbacks.tell("b")
    assert heard == [(1, "a"), (2, "a"), (2, "b")]


def test_who_comes_or_cancels_while_others_are_told_counts_from_the_next_time_on() -> None:
    callbacks = Callbacks[()]()
    heard: list[str] = []

    def come_and_go() -> None:
        heard.append("first")
        cancel()
        callbacks.add(lambda: heard.append("late"))

    cancel = callbacks.add(come_and_go)
    callbacks.tell()
    assert heard == ["first"]
    callbacks.tell()
    assert heard == ["first", "late"]


def test_a_failure_of_one_is_seen_and_keeps_no_other_from_hearing() -> None:
    callbacks = Callbacks[str]()
    heard: list[str] = []

    def fail(news: str) -> None:
        raise LookupError(news)

    callbacks.add(fail)
    callbacks.add(heard.append)
    callbacks.add(fail)
    with pytest.raises(LookupError, match="a"):
        callbacks.tell("a")
    assert heard == ["a"]
