"""Callers that wait for the first copy of an entry (acks=1 of topics)."""

import asyncio
import gc
import logging

import pytest

from ledger_client.errors import LedgerFencedError
from ledger_client.writing.confirmations import FirstReplicaWaiters
from metadata.ids import EntryId, LedgerId

FENCED = LedgerFencedError("fenced", ledger_id=LedgerId(7))


async def test_a_stored_batch_resolves_its_entries_and_no_others() -> None:
    waiters = FirstReplicaWaiters()
    futures = {number: waiters.expect(EntryId(number)) for number in (2, 3, 5, 6)}
    waiters.note(EntryId(3), EntryId(5))  # no caller waits for entry 4
    assert {n: future.done() for n, future in futures.items()} == {
        2: False,
        3: True,
        5: True,
        6: False,
    }
    assert [futures[number].result() for number in (3, 5)] == [3, 5]


async def test_two_callers_for_one_entry_share_its_future() -> None:
    waiters = FirstReplicaWaiters()
    first = waiters.expect(EntryId(0))
    assert waiters.expect(EntryId(0)) is first
    waiters.note(EntryId(0), EntryId(0))
    assert await first == 0


async def test_futures_are_expected_until_they_are_resolved_or_failed() -> None:
    waiters = FirstReplicaWaiters()
    assert not waiters.are_expected
    waiters.expect(EntryId(0))
    assert waiters.are_expected
    waiters.note(EntryId(0), EntryId(0))
    assert not waiters.are_expected
    waiters.expect(EntryId(1))
    waiters.fail(FENCED)
    assert not waiters.are_expected


async def test_a_cancelled_caller_prevents_neither_a_result_nor_a_failure() -> None:
    waiters = FirstReplicaWaiters()
    futures = [waiters.expect(EntryId(number)) for number in range(4)]
    futures[0].cancel()
    futures[2].cancel()
    waiters.note(EntryId(0), EntryId(1))
    waiters.fail(FENCED)
    assert futures[1].result() == 1
    assert isinstance(futures[3].exception(), LedgerFencedError)


async def test_a_failure_names_each_entry_and_logs_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    waiters = FirstReplicaWaiters()
    awaited, _unawaited = waiters.expect(EntryId(4)), waiters.expect(EntryId(5))
    waiters.fail(FENCED)
    with pytest.raises(LedgerFencedError) as raised:
        await awaited
    assert (raised.value.entry_id, raised.value.outcome) == (4, "unknown")
    with caplog.at_level(logging.ERROR):
        del awaited, _unawaited
        gc.collect()
        await asyncio.sleep(0)
    assert not caplog.records
