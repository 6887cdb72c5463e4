"""Which callbacks run on a change, and until when."""

import asyncio

from metadata.callbacks import Callbacks


def test_callbacks_run_in_order_until_cancelled() -> None:
    callbacks = Callbacks[str]()
    calls: list[tuple[int, str]] = []
    first = callbacks.add(lambda news: calls.append((1, news)))
    second = callbacks.add(lambda news: calls.append((2, news)))
    callbacks.notify("a")
    first()
    first()
    assert not callbacks.is_empty
    callbacks.notify("b")
    assert calls == [(1, "a"), (2, "a"), (2, "b")]
    second()
    assert callbacks.is_empty


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


async def test_a_failing_callback_is_reported_once_and_the_others_run() -> None:
    reports: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, what: reports.append(str(what["exception"])))
    callbacks = Callbacks[str]()
    calls: list[str] = []

    def fail(news: str) -> None:
        raise LookupError(news)

    callbacks.add(fail)
    callbacks.add(calls.append)
    callbacks.notify("a")
    callbacks.notify("b")
    assert reports == ["a"]
    callbacks.add(fail)
    callbacks.notify("c")
    assert reports == ["a", "c"], "each callback is reported"
    assert calls == ["a", "b", "c"]
