"""A close that is not stored in time: the client tries on, because repair recovers no ledger of a
live client (rule 9.2).
"""

import asyncio

import pytest

from ledger_client import LedgerClient, LedgerFencedError, MetadataUnavailableError
from tests.support.ledger_client.cluster import THREE, TestCluster, entries_of
from tests.until import until


async def state_of(client: LedgerClient, ledger_id: int) -> str:
    return (await client.ledger_info(ledger_id)).state


async def test_the_close_is_stored_once_the_service_is_back(cluster: TestCluster) -> None:
    client, other = cluster.client(close_timeout_s=0.1), cluster.client()
    writer = await client.create_ledger(THREE)
    await writer.append(b"a")
    cluster.stores[0].suspend()
    for call in (writer.aclose, writer.aclose, writer.abort):
        with pytest.raises(MetadataUnavailableError, match=r"within 0\.1 s") as raised:
            await call()
        assert (raised.value.retriable, raised.value.outcome) == (True, "unknown")
    assert client.stats().writers_open == 1
    cluster.stores[0].resume()
    await until(lambda: client.stats().writers_open == 0)  # without another call
    assert await state_of(other, writer.id) == "closed"
    await writer.aclose()
    assert await entries_of(other, writer.id, 0) == [b"a"]


async def test_another_call_waits_for_the_same_close(cluster: TestCluster) -> None:
    client = cluster.client(close_timeout_s=0.1)
    writer = await client.create_ledger(THREE)
    cluster.stores[0].suspend()
    with pytest.raises(MetadataUnavailableError):
        await writer.aclose()
    again = asyncio.create_task(writer.aclose(timeout=10))
    await asyncio.sleep(0.05)
    cluster.stores[0].resume()
    await again
    assert writer.info.state == "closed"


async def test_a_recovery_in_the_meantime_ends_the_writer(cluster: TestCluster) -> None:
    client, other = cluster.client(close_timeout_s=0.1), cluster.client()
    writer = await client.create_ledger(THREE)
    await writer.append(b"a")
    cluster.stores[0].suspend()
    pending = writer.append_nowait(b"b")
    with pytest.raises(MetadataUnavailableError):
        await writer.abort()
    assert pending.done()
    info = await other.recover_ledger(writer.id)
    cluster.stores[0].resume()
    if info.last_entry_id == 0:  # the same end: rule 6.2
        await writer.aclose()
    else:
        with pytest.raises(LedgerFencedError):
            await writer.aclose()
    await until(lambda: client.stats().writers_open == 0)


async def test_the_end_of_the_client_ends_the_attempts(cluster: TestCluster) -> None:
    client = cluster.client(close_timeout_s=0.1)
    writer = await client.create_ledger(THREE)
    cluster.stores[0].suspend()
    with pytest.raises(MetadataUnavailableError):
        await writer.aclose()
    closing = asyncio.create_task(client.aclose())
    await asyncio.sleep(0.3)
    cluster.stores[0].resume()  # the client waits until its registration is removed
    async with asyncio.timeout(5):
        await closing
    assert client.stats().writers_open == 0
