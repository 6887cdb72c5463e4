"""Readers that are dropped without aclose(): a warning, and nothing of them stays in the client."""

import gc

import pytest

from ledger_client import LedgerClient
from ledger_client.reading.followed_ledger import FollowedLedger
from tests.support.ledger_client.cluster import THREE, TestCluster
from tests.until import until


def views() -> int:
    gc.collect()
    return sum(isinstance(each, FollowedLedger) for each in gc.get_objects())


async def drop_readers(client: LedgerClient, ledger_id: int, count: int) -> None:
    for _ in range(count):
        reader = await client.open_ledger(ledger_id)
        await reader.read_entry(0)
        dropped = [reader]
        del reader
        with pytest.warns(ResourceWarning, match=f"a reader of ledger {ledger_id} was dropped"):
            dropped.clear()


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_dropped_reader_leaves_nothing(cluster: TestCluster, is_closed: bool) -> None:
    client = cluster.client()
    writer = await client.create_ledger(THREE)
    await writer.append(b"a")
    if is_closed:
        await writer.aclose()
    before = views()
    await drop_readers(client, writer.id, 5)
    attached = (await client._session.services()).pool._attach_counts
    await until(lambda: attached.get(writer.id, 0) == (0 if is_closed else 1))
    assert views() == before
    async with client.open_ledger(writer.id) as reader:
        assert (await reader.read_entry(0)).data == b"a"


async def test_a_reader_that_outlives_its_client_is_silent(cluster: TestCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger(THREE)
    reader = await client.open_ledger(writer.id)
    await client.aclose()
    del reader
    gc.collect()
