"""An entry that was acknowledged is in the next read: of the writer's client at once, and of others
up to an agreed end (protocol rules 8.1 and 8.7).
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ledger_client import LedgerClient, Quorum, QuorumTimeoutError
from ledger_client.reading.reader import LedgerReader
from tests.support.ledger_client.cluster import THREE, TestCluster

IDLE_S = 0.3
"""A writer's LAC arrives so late that a read which depends on it fails the test."""


@pytest.fixture
async def cluster() -> AsyncIterator[TestCluster]:
    cluster = TestCluster()
    for _ in range(3):
        await cluster.add_bookie()
    yield cluster
    await cluster.aclose()


def writing_client(cluster: TestCluster) -> LedgerClient:
    return cluster.client(lac_delay_s=IDLE_S)


async def ids_of(reader: LedgerReader, *, agreed: bool = False) -> list[int]:
    return [entry.id async for batch in reader.read(agreed=agreed) for entry in batch]


async def test_a_reader_of_the_same_client_knows_what_is_acknowledged(cluster: TestCluster) -> None:
    client = writing_client(cluster)
    async with client.create_ledger(THREE) as writer, client.open_ledger(writer.id) as early:
        for count in range(1, 5):
            await writer.append(b"acknowledged")
            wanted = list(range(count))
            async with client.open_ledger(writer.id) as reader:
                assert await ids_of(reader) == wanted
            assert await ids_of(early) == wanted
            assert (await early.read_entry(count - 1)).data == b"acknowledged"
            assert early.last_confirmed == await early.learn_last_confirmed() == count - 1


async def test_the_end_of_the_writer_hides_nothing(cluster: TestCluster) -> None:
    """The reader's view of the metadata is older than the close."""
    client = writing_client(cluster)
    writer = await client.create_ledger(THREE)
    async with client.open_ledger(writer.id) as reader:
        await writer.append(b"acknowledged")
        await writer.aclose()
        assert await ids_of(reader) == [0]


async def test_an_agreed_end_includes_what_another_client_acknowledged(
    cluster: TestCluster,
) -> None:
    client, other = writing_client(cluster), cluster.client()
    async with client.create_ledger(THREE) as writer, other.open_ledger(writer.id) as reader:
        await writer.append(b"acknowledged")
        assert await ids_of(reader) == [], "its LAC is not known yet"
        assert await ids_of(reader, agreed=True) == [0]
        assert await ids_of(reader, agreed=True) == [0]
    assert await reader_of_closed(other, writer.id) == [0]


async def reader_of_closed(client: LedgerClient, ledger_id: int) -> list[int]:
    async with client.open_ledger(ledger_id) as reader:
        return await ids_of(reader, agreed=True)


async def test_an_entry_that_no_writer_confirms_has_no_agreed_end(cluster: TestCluster) -> None:
    client, other = writing_client(cluster), cluster.client()
    quorum = Quorum(3, 3, 3)
    async with client.create_ledger(quorum) as writer, other.open_ledger(writer.id) as reader:
        await writer.append(b"acknowledged")
        for bookie in cluster.bookies[:2]:
            bookie.is_silent = True
        pending = asyncio.create_task(writer.append(b"pending"))
        with pytest.raises(QuorumTimeoutError, match="entries 1 to 1 are stored"):
            await reader.agreed_last(timeout=0.2)
        for bookie in cluster.bookies[:2]:
            bookie.is_silent = False
        await writer.abort()
        await asyncio.gather(pending, return_exceptions=True)


async def test_two_ends_are_refused(cluster: TestCluster) -> None:
    client = writing_client(cluster)
    async with client.create_ledger(THREE) as writer, client.open_ledger(writer.id) as reader:
        with pytest.raises(ValueError, match="give one of them"):
            await anext(reader.read(0, 1, agreed=True))
