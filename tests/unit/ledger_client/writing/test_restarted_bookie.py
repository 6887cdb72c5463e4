"""A restart of one of three bookies, without a spare, ends no writer (rule 5.5)."""

import asyncio

from metadata.store.memory import MemoryMetadataStore
from tests.support.ledger_client.cluster import THREE, TestCluster, entries_of


async def test_a_writer_goes_on_and_takes_the_bookie_back() -> None:
    cluster = TestCluster()
    for _ in range(3):
        await cluster.add_bookie()
    client, store = cluster.client(), MemoryMetadataStore(cluster.server)
    writer = await client.create_ledger(THREE)
    await writer.append(b"0")
    restarted = cluster.bookies[0]
    await restarted.unregister()
    await restarted.stop()
    assert [await writer.append(b"%d" % number) for number in range(1, 6)] == [1, 2, 3, 4, 5]
    assert writer.under_replicated
    await restarted.start()
    await restarted.register(store)
    last = 5
    while last not in restarted.ledgers[writer.id].entries:
        assert last < 300, "it is probed about once a second"
        await asyncio.sleep(0.05)
        last = await writer.append(b"more")
    await writer.wait_fully_replicated(last)
    await writer.aclose()
    assert len(await entries_of(client, writer.id, last)) == last + 1
    await store.aclose()
    await cluster.aclose()
