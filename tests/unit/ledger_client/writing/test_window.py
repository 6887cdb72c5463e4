"""Callers append first come, first served, at every moment."""

import asyncio

from ledger_client.writing.window import AppendWindow


async def test_no_caller_overtakes_two_that_wait_in_line() -> None:
    """Between the end of one turn and the beginning of the next, the lock itself is free."""
    window = AppendWindow(bytes_max=1_000, entries_max=10)
    order: list[str] = []
    may_end = asyncio.Event()

    async def hold() -> None:
        async with window.turn():
            await may_end.wait()
        order.append("slipped in" if window.is_free(1) else "stood back")

    async def stand_in_line() -> None:
        async with window.turn():
            order.append("next in line")

    tasks = [asyncio.create_task(hold()), asyncio.create_task(stand_in_line())]
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(*tasks)
    assert order == ["stood back", "next in line"]
    assert window.is_free(1)


async def test_a_cancelled_caller_in_line_is_skipped() -> None:
    window = AppendWindow(bytes_max=1_000, entries_max=10)
    may_end = asyncio.Event()

    async def stand_in_line() -> None:
        async with window.turn():
            await may_end.wait()

    holder, waiter = (asyncio.create_task(stand_in_line()) for _ in range(2))
    await asyncio.sleep(0)
    waiter.cancel()
    may_end.set()
    await asyncio.gather(holder, waiter, return_exceptions=True)
    assert waiter.cancelled()
    assert window.is_free(1)


async def test_a_caller_that_is_cancelled_as_it_gets_the_turn_passes_it_on() -> None:
    window = AppendWindow(bytes_max=1_000, entries_max=10)
    may_end = asyncio.Event()
    served: list[str] = []

    async def hold() -> None:
        async with window.turn():
            await may_end.wait()

    async def stand_in_line(name: str) -> None:
        async with window.turn():
            served.append(name)

    holder = asyncio.create_task(hold())
    cancelled, last = (asyncio.create_task(stand_in_line(name)) for name in ("cancelled", "last"))
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.sleep(0)  # the holder passes the turn on in this iteration
    cancelled.cancel()
    async with asyncio.timeout(10):
        await asyncio.gather(holder, cancelled, last, return_exceptions=True)
    assert served == ["last"]
    assert window.is_free(1)
