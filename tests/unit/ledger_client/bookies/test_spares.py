"""A bookie that has just joined is found by a client that would otherwise fail (protocol 5.5)."""

import asyncio

from ledger_client import Quorum
from tests.support.ledger_client.cluster import THREE, TestCluster


async def test_a_spare_that_just_joined_is_found(cluster: TestCluster) -> None:
    writer = await cluster.client().create_ledger(THREE)
    await writer.append(b"confirmed")
    spare = next(b for b in cluster.bookies if b.id not in writer.info.fragments[-1].ensemble)
    await spare.unregister()
    await asyncio.sleep(0.1)
    lost = cluster.bookie(writer.info.fragments[-1].ensemble[0])
    joined = await cluster.add_bookie()  # a client learns of a new bookie with a delay
    await lost.stop()
    for _ in range(10):
        await writer.append(b"more")
    assert joined.id in writer.info.fragments[-1].ensemble
    await writer.aclose()


async def test_a_ledger_is_created_on_bookies_that_just_joined(cluster: TestCluster) -> None:
    client = cluster.client()
    await (await client.create_ledger(THREE)).aclose()
    await cluster.add_bookie()
    five = Quorum(ensemble=5, write=3, ack=2)
    await (await client.create_ledger(five)).aclose()
