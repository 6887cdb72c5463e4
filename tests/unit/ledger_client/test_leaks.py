"""What a client that runs for a long time does not keep."""

import asyncio
import tracemalloc
from contextlib import suppress

import pytest

from ledger_client import LedgerError, LedgerFencedError
from ledger_client.errors import NotEnoughBookiesError
from ledger_client.writing.confirmations import OrderedWaiters
from ledger_client.writing.outbox import AppendWindow
from metadata.ids import EntryId, LedgerId
from tests.support.ledger_client.cluster import THREE, TestCluster
from tests.until import until

MEGABYTE = 1024 * 1024


async def test_failed_appends_keep_no_entries(cluster: TestCluster) -> None:
    writer = await cluster.client().create_ledger(THREE)
    await writer.append(b"x")
    await cluster.client().recover_ledger(writer.id)
    with pytest.raises(LedgerFencedError):
        await writer.append(b"y")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for _ in range(20):
            with suppress(LedgerError):
                await writer.append(bytearray(MEGABYTE), timeout=5)
            with suppress(LedgerError):
                await writer.append_many([bytearray(MEGABYTE)])
            with suppress(LedgerError):
                await writer.aclose()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 5 * MEGABYTE


async def test_each_waiter_gets_its_own_error() -> None:
    error = LedgerFencedError("fenced", ledger_id=LedgerId(1))
    error.__cause__ = LookupError("why")
    window = AppendWindow(1, 1)
    waiters = OrderedWaiters()
    futures = [waiters.wait(EntryId(0)) for _ in range(2)]
    waiters.fail(error)
    window.fail(error)
    seen: list[BaseException] = []
    for future in futures:
        with pytest.raises(LedgerFencedError) as caught:
            await future
        seen.append(caught.value)
    for _ in range(2):
        with pytest.raises(LedgerFencedError) as caught:
            async with window.turn():
                raise AssertionError
        seen.append(caught.value)
    assert len({id(exception) for exception in [*seen, error]}) == 5
    assert all(str(exception) == str(error) for exception in seen)
    assert all(exception.__cause__ is error.__cause__ for exception in seen)
    assert error.__traceback__ is None


def test_a_fresh_error_keeps_its_fields_and_not_its_notes() -> None:
    error = NotEnoughBookiesError("few", needed=3, seen=1, excluded={"a": "full"})
    error.add_note("of one caller")
    fresh = error.fresh()
    assert isinstance(fresh, NotEnoughBookiesError)
    assert (fresh.needed, fresh.seen, fresh.excluded) == (3, 1, {"a": "full"})
    assert not hasattr(fresh, "__notes__")


async def test_links_to_departed_bookies_are_dropped(cluster: TestCluster) -> None:
    client = cluster.client()
    async with client.create_ledger(THREE) as writer:
        await writer.append(b"x")
        gone = cluster.bookie(writer.members[0])
        await gone.unregister()
        await gone.stop()
        await until(lambda: gone.id not in writer.members)
    pool = (await client._session.services()).pool
    assert gone.id in pool.bookie_ids
    async with asyncio.timeout(5):
        while gone.id in pool.bookie_ids:  # each change of a registration looks for idle links
            await cluster.add_bookie()
            await asyncio.sleep(0.05)
    async with client.create_ledger(THREE) as writer:
        assert await writer.append(b"y") == 0
