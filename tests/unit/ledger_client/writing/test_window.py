"""Callers append first come, first served, at every moment; batches fit into the window."""

import asyncio
import gc
import logging
from collections.abc import Awaitable, Callable

import pytest

from ledger_client.errors import LedgerFencedError
from ledger_client.writing.outbox import ENTRY_COST_BYTES, AppendWindow
from metadata.ids import LedgerId
from tests.simulation.loop import run_simulation
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


# -- exact limits, and the line, in virtual time ---------------------------------------------------

FENCED = LedgerFencedError("fenced", ledger_id=LedgerId(7))


def used(bytes_: int, entries: int) -> AppendWindow:
    """Return a window of 1000 bytes and 10 entries with some of it taken."""
    window = AppendWindow(bytes_max=1_000, entries_max=10)
    window.take(bytes_ - entries * ENTRY_COST_BYTES, entries)
    return window


def test_the_window_admits_up_to_its_exact_limits() -> None:
    window = used(700, 2)
    assert window.has_room(300 - ENTRY_COST_BYTES)
    assert not window.has_room(301 - ENTRY_COST_BYTES)
    assert window.has_room(300 - 3 * ENTRY_COST_BYTES, 3)
    assert not window.has_room(301 - 3 * ENTRY_COST_BYTES, 3)
    assert window.is_free(300 - ENTRY_COST_BYTES)
    assert not window.is_free(301 - ENTRY_COST_BYTES)
    window = AppendWindow(bytes_max=10_000, entries_max=10)
    window.take(0, 8)
    assert window.has_room(0, 2)
    assert not window.has_room(0, 3)


def test_a_release_makes_exactly_its_room() -> None:
    window = used(900, 4)
    window.release(300, 2)
    left = 900 - 300 - 2 * ENTRY_COST_BYTES
    assert window.entries == 2
    assert window.has_room(1_000 - left - ENTRY_COST_BYTES)
    assert not window.has_room(1_001 - left - ENTRY_COST_BYTES)


def test_all_that_was_taken_can_be_released() -> None:
    window = used(900, 4)
    window.release(900 - 4 * ENTRY_COST_BYTES, 4)
    assert window.entries == 0
    assert window.has_room(10_000)


class Line:
    """Callers of one window that each hold the turn for a second."""

    def __init__(self) -> None:
        self.window = AppendWindow(bytes_max=1_000, entries_max=10)
        self.served: list[str] = []
        self.holders = 0

    async def stand(self, name: str) -> None:
        async with self.window.turn():
            self.holders += 1
            assert self.holders == 1, "one caller at a time has the turn"
            self.served.append(name)
            await asyncio.sleep(1.0)
            self.holders -= 1

    async def join(self, names: str) -> list[asyncio.Task[None]]:
        """Let callers come, one after the other."""
        tasks = []
        for name in names:
            tasks.append(asyncio.create_task(self.stand(name)))
            await asyncio.sleep(0.001)
        return tasks


def in_line(scenario: Callable[[Line], Awaitable[None]]) -> None:
    async def main() -> None:
        line = Line()
        await scenario(line)
        assert line.window.is_free(1)

    run_simulation(main, 1, until_s=60)


def test_callers_have_the_turn_one_after_the_other() -> None:
    async def scenario(line: Line) -> None:
        await asyncio.gather(*await line.join("abcd"))
        await asyncio.gather(*await line.join("ef"))
        assert "".join(line.served) == "abcdef"

    in_line(scenario)


def test_a_caller_that_is_cancelled_in_line_takes_no_turn() -> None:
    async def scenario(line: Line) -> None:
        first, cancelled, third, fourth = await line.join("abcd")
        cancelled.cancel()
        await asyncio.gather(first, third, fourth)
        assert cancelled.cancelled()
        assert "".join(line.served) == "acd"

    in_line(scenario)


def test_a_failure_ends_the_wait_of_the_line_and_of_later_callers() -> None:
    async def scenario(line: Line) -> None:
        first, cancelled, third = await line.join("abc")
        cancelled.cancel()
        line.window.fail(FENCED)
        for caller in (third, *await line.join("d")):
            with pytest.raises(LedgerFencedError):
                await caller
        await first
        for caller in await line.join("e"):
            with pytest.raises(LedgerFencedError):
                await caller
        assert line.served == ["a"]

    in_line(scenario)


def test_each_caller_gets_an_error_of_its_own() -> None:
    async def scenario(line: Line) -> None:
        first, *others = await line.join("abc")
        line.window.fail(FENCED)
        errors = await asyncio.gather(*others, return_exceptions=True)
        assert len({id(error) for error in (FENCED, *errors)}) == 3
        await first

    in_line(scenario)


async def test_a_failure_of_a_cancelled_caller_in_line_is_not_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    window = AppendWindow(bytes_max=1_000, entries_max=10)

    async def stand() -> None:
        async with window.turn():
            await asyncio.sleep(0.01)

    holder = asyncio.create_task(stand())
    await asyncio.sleep(0)
    waiter = asyncio.create_task(stand())
    await asyncio.sleep(0)
    window.fail(FENCED)
    waiter.cancel()
    await asyncio.wait((holder, waiter))
    assert waiter.cancelled()
    with caplog.at_level(logging.ERROR):
        del waiter
        gc.collect()
    assert not caplog.records
