"""What is asked for in one turn of the loop is done in the next, in order, whatever fails."""

import asyncio

from ledger_client.next_tick import TurnCalls


async def test_calls_come_in_the_next_turn_in_order_by_one_handle() -> None:
    calls, done = TurnCalls(), list[str]()
    calls.soon(lambda: done.append("first"))

    def go_on() -> None:
        done.append("second")
        calls.soon(lambda: done.append("later"))

    calls.soon(go_on)
    assert done == []
    await asyncio.sleep(0)
    assert done == ["first", "second"]
    await asyncio.sleep(0)
    assert done == ["first", "second", "later"]


async def test_an_error_is_reported_and_keeps_none_of_the_others_waiting() -> None:
    reported: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: reported.append(context.get("exception")))
    calls, done = TurnCalls(), list[str]()

    def fail() -> None:
        raise KeyError("of its own")

    calls.soon(fail)
    calls.soon(lambda: done.append("next"))
    await asyncio.sleep(0)
    assert done == ["next"]
    assert [type(error) for error in reported] == [KeyError]
