"""Reads that are asked for together go in one request, and each has its own result."""

import asyncio

import pytest

from metadata.errors import NodeNotFoundError, StoreClosedError
from metadata.store.interface import Create, MetadataStore
from metadata.store.zookeeper.grouped_reads import READS_PER_REQUEST_MAX
from tests.support.metadata.scripted_zookeeper import ScriptedZooKeeper, Standing

MARSHALLING_ERROR = -5


@pytest.fixture
async def nodes(zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore) -> list[str]:
    """Return the paths of nodes whose values are their numbers."""
    count = READS_PER_REQUEST_MAX + 2
    assert await zookeeper_store.children("/") == []
    zookeeper.write(*[Create(f"/quire/{number}", b"%d" % number) for number in range(count)])
    zookeeper.requests.clear()
    return [f"/{number}" for number in range(count)]


async def test_reads_of_one_pass_of_the_loop_share_requests(
    nodes: list[str], zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    found = await asyncio.gather(*map(zookeeper_store.get, nodes))
    assert [stored.value for stored in found] == [path[1:].encode() for path in nodes]
    assert {stored.version for stored in found} == {0}
    assert zookeeper.requests == ["gets", "gets"]


async def test_a_read_alone_is_an_ordinary_request(
    nodes: list[str], zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    await zookeeper_store.get(nodes[0])
    await zookeeper_store.get(nodes[1])
    assert zookeeper.requests == ["get", "get"]


async def test_a_node_that_is_missing_fails_its_own_read_only(
    nodes: list[str], zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    paths = [nodes[1], "/missing", nodes[2]]
    first, missing, last = await asyncio.gather(
        *map(zookeeper_store.get, paths), return_exceptions=True
    )
    assert not isinstance(first, BaseException)
    assert not isinstance(last, BaseException)
    assert (first.value, last.value) == (b"1", b"2")
    assert isinstance(missing, NodeNotFoundError)
    assert missing.path == "/missing"
    assert zookeeper.requests == ["gets"]


async def test_a_read_that_was_given_up_is_not_sent(
    nodes: list[str], zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    reads = [asyncio.ensure_future(zookeeper_store.get(path)) for path in nodes[:2]]
    await asyncio.sleep(0)
    reads[0].cancel()
    assert (await reads[1]).value == b"1"
    assert zookeeper.requests == ["get"], "the other one was not sent"
    assert reads[0].cancelled()


async def test_a_lost_connection_repeats_all_reads_of_a_request(
    nodes: list[str], zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    zookeeper.unanswered.append("gets")
    found = await asyncio.gather(*map(zookeeper_store.get, nodes[:3]))
    assert [stored.value for stored in found] == [b"0", b"1", b"2"]
    assert zookeeper.requests[0] == "gets"
    assert zookeeper.requests.count("gets") >= 2


async def test_a_request_that_is_refused_fails_all_its_reads(
    nodes: list[str], zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    zookeeper.errors["gets"] = [MARSHALLING_ERROR]
    found = await asyncio.gather(*map(zookeeper_store.get, nodes[:3]), return_exceptions=True)
    assert {type(each).__name__ for each in found} == {"StoreRefusedError"}
    assert (await zookeeper_store.get(nodes[0])).value == b"0"


async def test_fresh_reads_together_sync_before_they_read(
    nodes: list[str], zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    zookeeper.standing = Standing.LAGGING
    zookeeper.write(Create("/quire/a", b"a"), Create("/quire/b", b"b"))
    found = await asyncio.gather(
        zookeeper_store.get("/a", fresh=True), zookeeper_store.get("/b", fresh=True)
    )
    assert [stored.value for stored in found] == [b"a", b"b"]
    assert zookeeper.requests == ["sync", "sync", "gets"]


async def test_reads_that_wait_when_the_store_closes_fail(
    nodes: list[str], zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    zookeeper.pause()
    reads = [asyncio.ensure_future(zookeeper_store.get(path)) for path in nodes[:3]]
    await asyncio.sleep(0.05)
    closing = asyncio.ensure_future(zookeeper_store.aclose())
    found = await asyncio.gather(*reads, return_exceptions=True)
    assert {type(each) for each in found} == {StoreClosedError}
    zookeeper.resume()
    await closing
