"""Callers append first come, first served, at every moment; batches fit into the window."""

import asyncio

from ledger_client.writing.window import AppendWindow
from tests.support.ledger_client.cluster import THREE, TestCluster


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


async def test_no_batch_is_larger_than_the_window(cluster: TestCluster) -> None:
    """A batch beyond what a bookie may have unanswered makes all members leave (4.6)."""
    client = cluster.client(
        window_bytes_max=3_000,
        window_entries_max=5,
        entry_bytes_max=8_000,
        unanswered_bytes_max=24_000,
    )
    writer = await client.create_ledger(THREE)
    before = writer.members
    sizes = [*[10] * 12, *[2_000] * 12, 8_000, 8_000]
    await writer.append_many(bytes(size) for size in sizes)
    assert writer.members == before
    for _, batch in cluster.bookie(before[0]).adds:
        assert batch.header.count <= 5
        assert batch.header.count == 1 or sum(batch.lengths) <= 3_000
    await writer.aclose()
