"""The client on real bookies and a real ZooKeeper: main paths, failures, and typed refusals."""

import asyncio
import socket
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
import pytest_asyncio

from ledger_client import (
    BookieConnected,
    ClientConfig,
    ClientEvent,
    EnsembleChanged,
    EntryNotFoundError,
    LedgerClient,
    LedgerExistsError,
    LedgerFenced,
    LedgerFencedError,
    LedgerNotFoundError,
    MetadataUnavailableError,
    NotEnoughBookiesError,
    Quorum,
    UnauthorizedError,
)
from ledger_client import sync as blocking
from quire.local_cluster import LocalCluster
from tests.support.pausing import paused

pytestmark = pytest.mark.asyncio(loop_scope="module")

THREE = Quorum(ensemble=3, write=3, ack=2)
QUICK = ClientConfig(metadata_timeout_s=3.0, call_timeout_s=20.0)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    """Start four bookies; a test starts one again that it kills."""
    async with LocalCluster(bookies=4) as cluster:
        yield cluster


async def entries_of(
    client: LedgerClient, ledger_id: int, last: int, password: bytes = b""
) -> list[bytes]:
    async with client.open_ledger(ledger_id, password=password) as reader:
        return [entry.data async for batch in reader.read(0, last) for entry in batch]


async def test_append_read_and_delete(cluster: LocalCluster) -> None:
    async with LedgerClient(cluster.metadata_uri) as client:
        async with client.create_ledger(THREE, metadata={"app": "orders"}) as ledger:
            first = await ledger.append(b"order-1")
            ids = await ledger.append_many(b"order-%d" % number for number in range(2, 5000))
            await ledger.wait_fully_replicated(ids[-1])
            expected = [b"order-%d" % number for number in range(1, 5000)]
            assert await entries_of(client, ledger.id, ids[-1]) == expected, "while it is open"
        assert (first, ids) == (0, range(1, 4999))
        info = await client.ledger_info(ledger.id)
        assert (info.state, info.last_entry_id) == ("closed", 4998)
        assert info.length == sum(map(len, expected))
        async with client.open_ledger(ledger.id) as reader:
            tailed = [entry.data async for batch in reader.tail(start=0) for entry in batch]
        assert tailed == expected
        assert ledger.id in [ledger_info.id async for ledger_info in client.list_ledgers()]
        await client.delete_ledger(ledger.id)
        with pytest.raises(LedgerNotFoundError):
            await client.open_ledger(ledger.id)


async def test_bookies_that_die_and_a_second_client_that_takes_over(cluster: LocalCluster) -> None:
    events: list[ClientEvent] = []
    async with (
        LedgerClient(cluster.metadata_uri, on_event=events.append) as writing,
        LedgerClient(cluster.metadata_uri) as other,
    ):
        ledger = await writing.create_ledger(THREE)
        payloads = [b"%d" % number for number in range(3000)]
        await ledger.append_many(payloads[:1000])
        lost = ledger.info.fragments[0].ensemble[0]
        killed = next(bookie for bookie in cluster.bookies if bookie.id == lost)
        killed.kill()
        await ledger.append_many(payloads[1000:])
        while lost in ledger.info.fragments[-1].ensemble:
            await ledger.append(b"more")
            payloads.append(b"more")
        changes = [event for event in events if isinstance(event, EnsembleChanged)]
        assert [change.replaced for change in changes] == [(lost,)]
        await ledger.wait_fully_replicated(ledger.last_confirmed)  # on the replacement, too
        assert sum(isinstance(event, BookieConnected) for event in events) == 4
        info = await other.recover_ledger(ledger.id)
        assert info.last_entry_id == len(payloads) - 1
        with pytest.raises(LedgerFencedError):
            await ledger.append(b"late")
        assert LedgerFenced(ledger.id) in events
        assert await entries_of(other, ledger.id, len(payloads) - 1) == payloads
        # The dead bookie is still registered for a while, but a new ledger avoids it.
        async with writing.create_ledger(THREE) as second:
            await second.append(b"x")
            assert lost not in second.info.bookies
    await killed.restart()


@pytest.mark.parametrize("digest", ["crc32c", "hmac-sha256"])
async def test_passwords(cluster: LocalCluster, digest: str) -> None:
    async with (
        LedgerClient(cluster.metadata_uri) as client,
        LedgerClient(cluster.metadata_uri) as other,
    ):
        ledger = await client.create_ledger(THREE, digest=digest, password=b"the right password")
        await ledger.append(b"secret")
        for wrong in (b"wrong", b""):
            with pytest.raises(UnauthorizedError):
                await other.open_ledger(ledger.id, password=wrong)
            with pytest.raises(UnauthorizedError):
                await other.recover_ledger(ledger.id, password=wrong)
        await other.recover_ledger(ledger.id, password=b"the right password")
        with pytest.raises(UnauthorizedError):
            await other.open_ledger(ledger.id, password=b"wrong")
        assert await entries_of(other, ledger.id, 0, b"the right password") == [b"secret"]


async def test_refusals(cluster: LocalCluster) -> None:
    async with LedgerClient(cluster.metadata_uri) as client:
        with pytest.raises(NotEnoughBookiesError) as caught:
            await client.create_ledger(Quorum.all(5))
        assert (caught.value.needed, caught.value.seen) == (5, 4)
        async with client.create_ledger(THREE, ledger_id=9_000) as ledger:
            await ledger.append(b"x")
        with pytest.raises(LedgerExistsError):
            await client.create_ledger(THREE, ledger_id=9_000)
        async with client.open_ledger(9_000) as reader:
            with pytest.raises(EntryNotFoundError):
                await reader.read_entry(1)


@pytest.mark.long
async def test_zookeeper_is_down_for_a_while(cluster: LocalCluster) -> None:
    config = replace(QUICK, call_timeout_s=3.0)
    async with LedgerClient(cluster.metadata_uri, config=config) as client:
        ledger = await client.create_ledger(THREE)
        await ledger.append(b"before")
        with paused(cluster.zookeeper.pid):
            assert await ledger.append_many([b"x"] * 1000) == range(1, 1001)
            for call in (client.ledger_info(ledger.id), client.delete_ledger(ledger.id)):
                with pytest.raises(MetadataUnavailableError) as caught:
                    await call
                assert "127.0.0.1" in str(caught.value)
            with pytest.raises(MetadataUnavailableError):
                await client.create_ledger(THREE)
        await ledger.append(b"after")
        await ledger.aclose()


async def test_no_zookeeper_at_all() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: refused
        port = taken.getsockname()[1]
        client = LedgerClient(
            f"zk://127.0.0.1:{port}/quire", config=replace(QUICK, metadata_timeout_s=1.0)
        )
        with pytest.raises(MetadataUnavailableError, match=f"127.0.0.1:{port}"):
            async with client:
                raise AssertionError("it cannot be entered")
        with pytest.raises(MetadataUnavailableError):
            await client.ledger_info(1)  # a second attempt raises again
        await client.aclose()


async def test_a_silent_zookeeper() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        port = silent.getsockname()[1]
        client = LedgerClient(
            f"zk://127.0.0.1:{port}", config=replace(QUICK, metadata_timeout_s=1.0)
        )
        with pytest.raises(MetadataUnavailableError, match=str(port)):
            await client.ledger_info(1)
        await client.aclose()


async def test_the_blocking_client(cluster: LocalCluster) -> None:
    def use() -> list[bytes]:
        with blocking.LedgerClient(cluster.metadata_uri) as client:
            with client.create_ledger(THREE) as ledger, ThreadPoolExecutor(4) as threads:
                list(threads.map(ledger.append, [b"x"] * 200))
                ledger.append_many(b"%d" % number for number in range(1000))
            with client.open_ledger(ledger.id) as reader:
                return [entry.data for batch in reader.read() for entry in batch]

    found = await asyncio.get_running_loop().run_in_executor(None, use)
    assert found == [b"x"] * 200 + [b"%d" % number for number in range(1000)]
