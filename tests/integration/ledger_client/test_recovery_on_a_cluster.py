"""Tests of recovery and reading with real bookies and a real ZooKeeper.

Clients take over from a live writer, and bookies are killed and paused (protocol sections 7 and 8).
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ledger_client import LedgerClient, Quorum
from ledger_client.errors import LedgerError, LedgerFencedError, RecoveryUndecidedError
from ledger_client.reading.reader import LedgerReader
from ledger_client.writing.writer import LedgerWriter
from quire.local_cluster import LocalCluster
from tests.until import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.long]

ENTRY = b"." * 500
RECOVERERS = 5
SOME = 1_000
"""Entries that are confirmed before the others take over."""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    """Start five bookies; tests start those again that they kill."""
    async with LocalCluster(bookies=5) as running:
        yield running


def payload(number: int) -> bytes:
    return b"%08d" % number + ENTRY


async def append_until_fenced(writer: LedgerWriter) -> int:
    """Append as fast as confirmations come; return the last acknowledged id."""
    last, number = -1, 0
    while True:
        batch = [payload(number + each) for each in range(50)]
        number += len(batch)
        try:
            last = (await writer.append_many(batch))[-1]
        except LedgerFencedError as error:
            if error.confirmed_count:
                last = error.first_entry_id + error.confirmed_count - 1
            return last


async def check_all(reader: LedgerReader, last: int) -> None:
    """Read all entries and compare."""
    expected = 0
    async for batch in reader.read(0, last):
        for entry in batch:
            assert (entry.id, entry.data) == (expected, payload(expected))
            expected += 1
    assert expected == last + 1


@pytest.mark.parametrize("ack", [2, 3])
async def test_five_clients_take_over_from_a_live_writer(cluster: LocalCluster, ack: int) -> None:
    async with contextlib.AsyncExitStack() as stack:
        uri = cluster.metadata_uri
        clients = [
            await stack.enter_async_context(LedgerClient(uri)) for _ in range(RECOVERERS + 1)
        ]
        writer = await clients[0].create_ledger(Quorum(ensemble=3, write=3, ack=ack))
        appending = asyncio.create_task(append_until_fenced(writer))
        tailing = asyncio.create_task(count_tail(clients[1], writer.id))
        await until(lambda: writer.last_confirmed >= SOME)
        infos = await asyncio.gather(*[client.recover_ledger(writer.id) for client in clients[1:]])
        acknowledged = await appending
        ends = {(info.last_entry_id, info.length) for info in infos}
        assert len(ends) == 1
        last, length = ends.pop()
        assert last is not None
        assert last >= acknowledged >= 0
        assert length == (last + 1) * len(payload(0))
        assert await tailing == last + 1
        async with clients[2].open_ledger(writer.id) as reader:
            await check_all(reader, last)
        with contextlib.suppress(LedgerError):
            await writer.aclose()


async def count_tail(client: LedgerClient, ledger_id: int) -> int:
    """Follow a ledger to its end; return the number of entries, which must come in order."""
    expected = 0
    async with client.open_ledger(ledger_id) as reader:
        async for batch in reader.tail():
            assert batch.first_entry_id == expected
            expected += len(batch)
    return expected


@pytest.mark.parametrize("is_paused", [False, True], ids=["killed", "paused"])
async def test_recovery_replaces_a_bookie_that_is_away(
    cluster: LocalCluster, is_paused: bool
) -> None:
    async with (
        LedgerClient(cluster.metadata_uri) as client,
        LedgerClient(cluster.metadata_uri) as other,
    ):
        writer = await client.create_ledger(Quorum(ensemble=3, write=3, ack=2))
        appending = asyncio.create_task(append_until_fenced(writer))
        await until(lambda: writer.last_confirmed >= 0)
        info = await client.ledger_info(writer.id)
        away = next(b for b in cluster.bookies if b.id in info.fragments[-1].ensemble)
        if is_paused:
            away.pause()
        else:
            away.kill()
        info = await other.recover_ledger(writer.id)
        acknowledged = await appending
        assert info.last_entry_id is not None
        assert info.last_entry_id >= acknowledged >= 0
        async with other.open_ledger(writer.id) as reader:
            await check_all(reader, info.last_entry_id)
        with contextlib.suppress(LedgerError):
            await writer.aclose()
        if is_paused:
            away.resume()
        else:
            await away.restart()


async def test_without_enough_bookies_the_end_stays_open_until_they_return(
    cluster: LocalCluster,
) -> None:
    async with LedgerClient(cluster.metadata_uri) as client:
        writer = await client.create_ledger(Quorum(ensemble=3, write=3, ack=2))
        await writer.append_many([payload(number) for number in range(100)])
        await writer.wait_fully_replicated(99)  # a copy in progress would fail, and be replaced
        info = await client.ledger_info(writer.id)
        members = [b for b in cluster.bookies if b.id in info.fragments[-1].ensemble]
        # No spare is left: the idle writer would replace the killed bookie with it (rule 5.6).
        killed = [b for b in cluster.bookies if b.id != members[2].id]
        for bookie in killed:
            bookie.kill()
        async with LedgerClient(cluster.metadata_uri) as other:
            with pytest.raises(RecoveryUndecidedError) as raised:
                await other.recover_ledger(writer.id)
            assert set(raised.value.missing) == {b.id for b in members[:2]}
            for bookie in killed:
                await bookie.restart()
            info = await other.recover_ledger(writer.id)
            assert info.last_entry_id == 99
            async with other.open_ledger(writer.id) as reader:
                await check_all(reader, 99)
        with contextlib.suppress(LedgerError):
            await writer.abort()
