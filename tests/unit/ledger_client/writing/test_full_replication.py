"""Which entries are on their complete write set, and what callers hear (rules 4.6 and 6.3)."""

import asyncio

import pytest

from ledger_client.errors import LedgerError, LedgerFencedError, QuorumTimeoutError
from ledger_client.writing.confirmations import STRETCHES_MAX, FullReplication
from metadata.ids import EntryId, LedgerId
from tests.simulation.loop import run_simulation, simulation_loop

LEDGER = LedgerId(7)
FENCED = LedgerFencedError("fenced", ledger_id=LEDGER)


def recorded(*stretches: tuple[int, int]) -> FullReplication:
    replication = FullReplication(LEDGER)
    for first, last in stretches:
        replication.record_stretch(EntryId(first), EntryId(last))
    return replication


async def outcome(replication: FullReplication, entry_id: int) -> LedgerError | None:
    """Return what a caller hears that must not wait."""
    waiting = asyncio.ensure_future(replication.wait(EntryId(entry_id)))
    for _ in range(3):
        await asyncio.sleep(0)
    assert waiting.done(), "nothing is left to wait for"
    error = waiting.exception()
    assert error is None or isinstance(error, LedgerError)
    return error


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ([(0, 1)], ((0, 1),)),
        ([(0, 1), (2, 4)], ((0, 4),)),
        ([(0, 1), (1, 4)], ((0, 4),)),
        ([(0, 1), (3, 3), (4, 4), (9, 9)], ((0, 1), (3, 4), (9, 9))),
        ([(5, 9), (11, 12), (13, 13), (14, 20)], ((5, 9), (11, 20))),
    ],
)
def test_neighbours_are_one_stretch(
    given: list[tuple[int, int]], found: tuple[tuple[int, int], ...]
) -> None:
    assert recorded(*given).stretches == found


def test_stretches_above_the_limit_are_merged_with_the_gap_between_them() -> None:
    replication = recorded(*((3 * n, 3 * n + 1) for n in range(STRETCHES_MAX)))
    assert len(replication.stretches) == STRETCHES_MAX
    last = 3 * (STRETCHES_MAX - 1)
    replication.record_stretch(EntryId(last + 10), EntryId(last + 11))
    assert len(replication.stretches) == STRETCHES_MAX
    assert replication.stretches[-2:] == ((last - 3, last - 2), (last, last + 11))


async def test_only_entries_of_a_stretch_are_not_on_their_write_set() -> None:
    replication = recorded((2, 3), (6, 6), (8, 9))
    replication.settle(EntryId(11))
    found = [await outcome(replication, entry_id) for entry_id in range(12)]
    lacking = [n for n, error in enumerate(found) if isinstance(error, QuorumTimeoutError)]
    assert lacking == [2, 3, 6, 8, 9]
    assert [error for n, error in enumerate(found) if n not in lacking] == [None] * 7
    error = found[3]
    assert error is not None
    assert "entries 2..3 are confirmed" in str(error)
    assert (error.entry_id, error.outcome, error.ledger_id) == (3, "unknown", LEDGER)


async def test_a_caller_waits_until_its_entry_is_settled() -> None:
    replication = FullReplication(LEDGER)
    waiting = [asyncio.ensure_future(replication.wait(EntryId(n))) for n in range(3)]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    replication.settle(EntryId(1))
    replication.settle(EntryId(0))
    assert replication.settled == 1
    for _ in range(3):
        await asyncio.sleep(0)
    assert [task.done() for task in waiting] == [True, True, False]
    assert await outcome(replication, 1) is None
    replication.settle(EntryId(2))
    await waiting[2]


async def test_after_a_failure_only_what_was_not_settled_fails() -> None:
    replication = FullReplication(LEDGER)
    waiting = asyncio.ensure_future(replication.wait(EntryId(5)))
    await asyncio.sleep(0)
    replication.settle(EntryId(2))
    replication.record_stretch(EntryId(4), EntryId(4))
    replication.fail(FENCED)
    with pytest.raises(LedgerFencedError):
        await waiting
    assert await outcome(replication, 1) is None
    assert await outcome(replication, 2) is None
    failed = await outcome(replication, 3)
    assert isinstance(failed, LedgerFencedError)
    assert (failed.entry_id, failed.outcome) == (3, "unknown")
    assert isinstance(await outcome(replication, 4), QuorumTimeoutError)


def in_virtual_time(*, settle: int | None = None, fail_s: float | None = None) -> float:
    """Return how long a wait of at most 10 s for entry 3 lasts."""

    async def main() -> float:
        loop = simulation_loop()
        replication = FullReplication(LEDGER)
        if settle is not None:
            replication.settle(EntryId(settle))
        if fail_s == 0.0:
            replication.fail(FENCED)
        elif fail_s is not None:
            loop.call_later(fail_s, replication.fail, FENCED)
        loop.call_later(4.0, replication.settle, EntryId(2))
        await replication.wait_settled(EntryId(3), 10.0)
        return loop.time()

    return run_simulation(main, 1, until_s=60)


def test_a_limited_wait_ends_when_the_entry_is_settled_or_the_time_is_up() -> None:
    assert in_virtual_time() == pytest.approx(10.0)
    assert in_virtual_time(settle=2) == pytest.approx(10.0)
    assert in_virtual_time(settle=3) == 0.0


def test_a_limited_wait_ends_with_the_writer() -> None:
    assert in_virtual_time(fail_s=0.0) == 0.0
    assert in_virtual_time(fail_s=1.0) == pytest.approx(1.0)


def test_a_limited_wait_ends_once_the_entry_is_settled() -> None:
    async def main() -> float:
        loop = simulation_loop()
        replication = FullReplication(LEDGER)
        loop.call_later(2.0, replication.settle, EntryId(3))
        await replication.wait_settled(EntryId(3), 10.0)
        return loop.time()

    assert run_simulation(main, 1, until_s=60) == pytest.approx(2.0)
