"""Calls requested in one loop iteration run in the next one, in order, whatever fails."""

import asyncio

from ledger_client.tasks import NextTick


async def test_calls_run_in_the_next_iteration_in_order_by_one_handle() -> None:
    calls, done = NextTick(), list[str]()
    calls.soon(lambda: done.append("first"))

    def resume() -> None:
        done.append("second")
        calls.soon(lambda: done.append("later"))

    calls.soon(resume)
    assert done == []
    await asyncio.sleep(0)
    assert done == ["first", "second"]
    await asyncio.sleep(0)
    assert done == ["first", "second", "later"]


async def test_an_error_is_reported_and_the_others_run() -> None:
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: reported.append(context.get("exception")))
    calls, done = NextTick(), list[str]()

    def fail() -> None:
        raise KeyError("of its own")

    calls.soon(fail)
    calls.soon(lambda: done.append("next"))
    await asyncio.sleep(0)
    assert done == ["next"]
    assert [type(error) for error in reported] == [KeyError]
