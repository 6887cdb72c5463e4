"""Which callbacks run on a change, and until when."""

import pytest

from metadata.callbacks import Callbacks


def test_callbacks_run_in_order_until_cancelled() -> None:
    callbacks = Callbacks[str]()
    calls: list[tuple[int, str]] = []
    first = callbacks.add(lambda news: calls.append((1, news)))
    callbacks.add(lambda news: calls.append((2, news)))
    callbacks.notify("a")
    first()
    first()
    callbacks.notify("b")
    assert calls == [(1, "a"), (2, "a"), (2, "b")]


def test_changes_during_a_notification_apply_from_the_next_one_on() -> None:
    callbacks = Callbacks[()]()
    calls: list[str] = []

    def come_and_go() -> None:
        calls.append("first")
        cancel()
        callbacks.add(lambda: calls.append("late"))

    cancel = callbacks.add(come_and_go)
    callbacks.notify()
    assert calls == ["first"]
    callbacks.notify()
    assert calls == ["first", "late"]


def test_a_failing_callback_is_raised_after_the_others_ran() -> None:
    callbacks = Callbacks[str]()
    calls: list[str] = []

    def fail(news: str) -> None:
        raise LookupError(news)

    callbacks.add(fail)
    callbacks.add(calls.append)
    callbacks.add(fail)
    with pytest.raises(LookupError, match="a"):
        callbacks.notify("a")
    assert calls == ["a"]
