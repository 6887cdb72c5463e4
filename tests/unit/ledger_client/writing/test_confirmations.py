"""Callers are answered in order, and failures that are not awaited are not logged."""

import asyncio
import gc
import logging
import weakref

import pytest

from ledger_client.errors import LedgerError, LedgerFencedError, QuorumTimeoutError
from ledger_client.tasks import NextTick
from ledger_client.writing.confirmations import Confirmations, FullReplication, OrderedWaiters
from ledger_client.writing.outbox import ENTRY_COST_BYTES, AppendWindow
from metadata.ids import EntryId, LedgerId

LEDGER = LedgerId(7)


async def test_the_lac_resolves_every_entry_up_to_it_in_order() -> None:
    confirmations = Confirmations(NextTick())
    order: list[int] = []
    futures = [confirmations.expect(EntryId(i)) for i in range(4)]
    for future in futures:
        future.add_done_callback(lambda done: order.append(done.result()))
    confirmations.confirm(EntryId(2))
    await asyncio.sleep(0)
    assert order == [0, 1, 2]
    assert not futures[3].done()


async def test_a_cancelled_caller_does_not_delay_the_others() -> None:
    confirmations = Confirmations(NextTick())
    first, second = confirmations.expect(EntryId(0)), confirmations.expect(EntryId(1))
    first.cancel()
    confirmations.confirm(EntryId(1))
    assert second.result() == 1


async def test_a_failure_names_each_entry_and_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    confirmations = Confirmations(NextTick())
    futures = [confirmations.expect(EntryId(i)) for i in (3, 4)]
    confirmations.fail(LedgerFencedError("fenced", ledger_id=LEDGER))
    errors = [future.exception() for future in futures]
    assert [getattr(error, "entry_id", None) for error in errors] == [3, 4]
    assert [getattr(error, "outcome", None) for error in errors] == ["unknown", "unknown"]
    unawaited = confirmations.expect(EntryId(5))
    confirmations.fail(LedgerFencedError("fenced", ledger_id=LEDGER))
    with caplog.at_level(logging.ERROR):
        del unawaited, futures, errors
        gc.collect()
    assert not caplog.records


async def test_a_follower_is_called_once_per_iteration_and_receives_the_failure_last() -> None:
    confirmations = Confirmations(NextTick())
    calls: list[LedgerError | None] = []
    confirmations.follow(calls.append)
    confirmations.confirm(EntryId(1))
    confirmations.confirm(EntryId(2))
    assert calls == []  # never from inside the call that confirmed it
    await asyncio.sleep(0)
    assert calls == [None]
    error = LedgerFencedError("fenced", ledger_id=LEDGER)
    confirmations.confirm(EntryId(3))
    confirmations.fail(error)
    await asyncio.sleep(0)
    assert calls == [None, error]


async def test_an_entry_up_to_the_lac_is_confirmed_at_once_whatever_comes_later() -> None:
    confirmations = Confirmations(NextTick())
    confirmations.confirm(EntryId(4))
    assert confirmations.expect(EntryId(4)).result() == 4
    confirmations.fail(LedgerFencedError("fenced", ledger_id=LEDGER))
    assert confirmations.expect(EntryId(4)).result() == 4
    failed = confirmations.expect(EntryId(5))
    with pytest.raises(LedgerFencedError) as raised:
        await failed
    assert raised.value.entry_id == 5


async def test_a_cancelled_caller_does_not_stop_the_failure_of_others() -> None:
    confirmations = Confirmations(NextTick())
    futures = [confirmations.expect(EntryId(i)) for i in range(3)]
    futures[1].cancel()
    confirmations.fail(LedgerFencedError("fenced", ledger_id=LEDGER))
    assert [future.cancelled() for future in futures] == [False, True, False]
    for future in (futures[0], futures[2]):
        assert isinstance(future.exception(), LedgerFencedError)


async def test_nothing_is_called_without_a_follower() -> None:
    errors: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: errors.append(what))
    confirmations = Confirmations(NextTick())
    confirmations.confirm(EntryId(1))
    confirmations.fail(LedgerFencedError("fenced", ledger_id=LEDGER))
    await asyncio.sleep(0.01)
    assert errors == []


async def test_a_follower_receives_a_failure_that_comes_alone() -> None:
    confirmations = Confirmations(NextTick())
    calls: list[LedgerError | None] = []
    confirmations.follow(calls.append)
    error = LedgerFencedError("fenced", ledger_id=LEDGER)
    confirmations.fail(error)
    await asyncio.sleep(0)
    assert calls == [error]


async def test_waiters_for_any_order_of_entries_are_resolved_up_to_an_entry() -> None:
    waiters = OrderedWaiters()
    waiters.advance(EntryId(0))
    futures = {i: waiters.wait(EntryId(i)) for i in (5, 3, 4, 6)}
    futures[3].cancel()
    waiters.advance(EntryId(4))
    waiters.advance(EntryId(5))  # in the same iteration of the loop
    assert [i for i, future in futures.items() if future.done()] == [5, 3, 4]
    assert futures[4].result() is None
    await asyncio.sleep(0)
    waiters.advance(EntryId(6))
    assert futures[6].done()


async def test_a_failure_reaches_every_waiter_and_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiters = OrderedWaiters()
    done, cancelled, first, second, unawaited = [waiters.wait(EntryId(i)) for i in range(5)]
    waiters.advance(EntryId(0))
    cancelled.cancel()
    error = LedgerFencedError("fenced", ledger_id=LEDGER)
    waiters.fail(error)
    assert done.result() is None
    assert cancelled.cancelled()
    failures = [first.exception(), second.exception()]
    assert [type(failure) for failure in failures] == [LedgerFencedError] * 2
    assert len({id(failure) for failure in (error, *failures)}) == 3, "each has its own traceback"
    await asyncio.sleep(0)
    with caplog.at_level(logging.ERROR):
        del unawaited
        gc.collect()
    assert not caplog.records


async def test_a_waiter_that_is_done_is_not_kept() -> None:
    waiters = OrderedWaiters()
    future = waiters.wait(EntryId(1))
    kept = weakref.ref(future)
    future.cancel()
    await asyncio.sleep(0)
    del future
    gc.collect()
    assert kept() is None


async def test_the_window_admits_in_order_and_always_admits_one() -> None:
    window = AppendWindow(bytes_max=1000, entries_max=3)
    assert window.has_room(
        10_000
    )  # anything may pass while nothing is pending: a large entry could otherwise never pass
    window.take(900 - ENTRY_COST_BYTES, 1)
    assert not window.has_room(100)
    waiting = asyncio.create_task(window.wait_for_room(100, 1))
    await asyncio.sleep(0)
    assert not waiting.done()
    window.release(900 - ENTRY_COST_BYTES, 1)
    await waiting
    window.take(1, 3)
    assert not window.has_room(1)


async def test_a_failed_window_fails_present_and_future_callers() -> None:
    window = AppendWindow(bytes_max=100, entries_max=1)
    window.take(1, 1)
    waiting = asyncio.create_task(window.wait_for_room(1, 1))
    await asyncio.sleep(0)
    window.fail(LedgerFencedError("fenced", ledger_id=LEDGER))
    with pytest.raises(LedgerFencedError):
        await waiting
    with pytest.raises(LedgerFencedError):
        await window.wait_for_room(1, 1)


async def test_full_replication_is_distinguished_from_a_stretch() -> None:
    replication = FullReplication(LEDGER)
    waiting = asyncio.create_task(replication.wait(EntryId(3)))
    short = asyncio.create_task(replication.wait(EntryId(5)))
    await asyncio.sleep(0)
    replication.settle(EntryId(3))
    await waiting
    replication.record_stretch(EntryId(4), EntryId(4))
    replication.record_stretch(EntryId(5), EntryId(6))
    replication.settle(EntryId(6))
    with pytest.raises(QuorumTimeoutError, match=r"entries 4\.\.6"):
        await short
    assert replication.stretches == ((4, 6),)
    await replication.wait(EntryId(2))
