"""Chains on a real ZooKeeper: publishing once, withdrawing, collecting, following."""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import replace

import pytest
import pytest_asyncio

from ledger_client import (
    Chain,
    ChainExistsError,
    ChainInfo,
    ChainNotFoundError,
    LedgerClient,
    LedgerInfo,
    LedgerNotFoundError,
    LedgersCollectedError,
    Published,
    Quorum,
)
from ledger_client import sync as blocking
from quire.local_cluster import LocalCluster

pytestmark = pytest.mark.asyncio(loop_scope="module")

TWO = Quorum.all(2)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(bookies=2) as cluster:
        yield cluster


@pytest_asyncio.fixture(loop_scope="module")
async def client(cluster: LocalCluster) -> AsyncIterator[LedgerClient]:
    async with LedgerClient(cluster.metadata_uri) as client:
        yield client


@pytest.fixture
def chain(client: LedgerClient, request: pytest.FixtureRequest) -> Chain:
    """Chain with the name of the test."""
    return client.chain(request.node.name)


async def written(client: LedgerClient, chain: Chain, entries: int = 3) -> LedgerInfo:
    async with client.create_ledger(TWO, metadata=chain.custom_metadata) as writer:
        await writer.append_many([b"%d" % n for n in range(entries)])
    return writer.info


async def linked(chain: Chain) -> list[int]:
    info = await chain.info()
    links = chain.links(info.first_index, info.next_index)
    return [
        ledger.ledger_id async for _, link in links if link is not None for ledger in link.ledgers
    ]


async def test_published_links_are_there_once_and_others_are_collected(
    client: LedgerClient, chain: Chain
) -> None:
    with pytest.raises(ChainNotFoundError):
        await chain.info()
    await chain.create()
    with pytest.raises(ChainExistsError):
        await chain.create()
    await chain.create(exist_ok=True)
    infos = [await written(client, chain) for _ in range(4)]
    first, second, lost, late = infos
    done = await chain.publish([first, second], application="query", batch=0)
    assert done == Published(0, is_new=True)
    again = await chain.publish([lost], application="query", batch=0)
    assert again == Published(0, is_new=False)
    assert await chain.last_batch("query") == 0
    assert await linked(chain) == [first.id, second.id]
    assert await chain.withdraw([second.id, lost.id], since_index=0) == [lost.id]
    assert await chain.collect(grace_s=3_600) == 0
    assert await chain.collect(grace_s=0) == 1  # the late ledger, which was not published
    with pytest.raises(LedgerNotFoundError):
        await client.ledger_info(late.id)
    with pytest.raises(LedgersCollectedError, match="nothing was published"):
        await chain.publish([late])
    assert await linked(chain) == [first.id, second.id]


async def test_a_replaced_link_is_collected(client: LedgerClient, chain: Chain) -> None:
    await chain.create()
    old, new = await written(client, chain), await written(client, chain)
    await chain.publish([old])
    await chain.publish([new], replaces=True)
    assert await linked(chain) == [new.id]
    assert await chain.collect(grace_s=0) == 1
    assert [link async for link in chain.links(0, 1)] == [(0, None)]
    await chain.delete()
    assert chain.name not in await client.list_chains()
    assert (await client.ledger_info(new.id)).is_closed


async def test_concurrent_publishers(client: LedgerClient, chain: Chain) -> None:
    await chain.create()
    infos = await asyncio.gather(*[written(client, chain, 1) for _ in range(20)])
    work = [
        chain.publish([info], application=f"a{n % 10}", batch=n // 10)
        for n, info in enumerate(infos)
    ]
    results = await asyncio.gather(*work)
    kept = await linked(chain)
    assert len(kept) == len(set(kept)) == sum(result.is_new for result in results)
    for application in range(10):
        assert await chain.last_batch(f"a{application}") == 1


async def test_a_change_is_waited_for(client: LedgerClient, chain: Chain) -> None:
    await chain.create()
    known = await chain.info()
    assert await chain.wait_changed(known, timeout=0.2) == known
    waiting = asyncio.create_task(chain.wait_changed(known, timeout=60))
    await asyncio.sleep(0.1)
    await chain.publish([await written(client, chain)])
    assert await waiting == replace(known, next_index=1)


async def test_a_chain_that_is_created_again_has_another_token(
    client: LedgerClient, chain: Chain
) -> None:
    await chain.create()
    first = await chain.info()
    waiting = asyncio.create_task(chain.wait_changed(first, timeout=60))
    await chain.publish([await written(client, chain)])
    token = (await chain.trim(1)).creation_token
    assert token == (await chain.info()).creation_token == (await waiting).creation_token
    await chain.delete()
    await chain.create()
    again = await chain.info()
    assert (again.first_index, again.next_index) == (first.first_index, first.next_index)
    assert len(token) == len(again.creation_token)
    assert first.creation_token == token != again.creation_token


async def test_wrong_calls_are_refused(client: LedgerClient, chain: Chain) -> None:
    await chain.create()
    for wrong in ({"application": "a"}, {"batch": 1}, {"application": "a", "batch": -1}):
        with pytest.raises(ValueError, match="batch"):
            await chain.publish([], **wrong)
    with pytest.raises(ValueError, match="negative"):
        await chain.collect(-1)
    with pytest.raises(ValueError, match="is not a valid chain name"):
        client.chain("a/b")


async def test_the_blocking_face(cluster: LocalCluster) -> None:
    await asyncio.to_thread(use_the_blocking_face, cluster.metadata_uri)


def use_the_blocking_face(uri: str) -> None:
    with blocking.LedgerClient(uri) as client:
        chain = client.chain("blocking")
        chain.create()
        followed = chain.follow()
        with client.create_ledger(TWO, metadata=chain.custom_metadata) as writer:
            writer.append_many([b"a", b"b"])
        reader = client.open_ledger(writer.id)
        reader.follow()
        assert reader.wait_confirmed(0, timeout=30) == 1
        chain.publish([writer.info], application="x", batch=3)
        known = ChainInfo("blocking", 0, 0, chain.info().creation_token)
        assert chain.wait_changed(known, timeout=30).next_index == 1
        for _ in range(1_000):
            if followed.info.next_index == 1:
                break
            time.sleep(0.01)
        assert followed.info.next_index == 1
        assert chain.last_batch("x") == 3
        assert next(link for _, link in chain.links(0, 1)) is not None
        assert [info and info.id for info in client.ledger_infos([writer.id, 999])] == [
            writer.id,
            None,
        ]
        followed.close()
        assert chain.name in client.list_chains()
        chain.delete()
        assert chain.name not in client.list_chains()
