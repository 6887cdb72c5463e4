"""What a read sees of other clients' writes, by the standing of its server (protocol 1.6)."""

import asyncio

import pytest

from metadata.errors import NodeNotFoundError, StoreUnavailableError
from metadata.ids import Version
from metadata.store.interface import CompareAndSet, Create, MetadataStore
from tests.support.metadata.scripted_zookeeper import ScriptedZooKeeper, Standing
from tests.until import until

PATH = "/quire/a"


@pytest.fixture
async def behind(zookeeper: ScriptedZooKeeper, zookeeper_store: MetadataStore) -> ScriptedZooKeeper:
    """Return a server that lags: another client wrote /a again, and made /b."""
    zookeeper.write(Create(PATH, b"old"))
    assert (await zookeeper_store.get("/a")).value == b"old"
    zookeeper.standing = Standing.LAGGING
    zookeeper.write(CompareAndSet(PATH, b"new", Version(0)), Create("/quire/b", b""))
    zookeeper.requests.clear()
    return zookeeper


async def test_a_read_may_see_an_older_state(
    behind: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    assert (await zookeeper_store.get("/a")).value == b"old"
    assert await zookeeper_store.children("/") == ["a"]
    assert behind.requests == ["get", "children"]


async def test_a_fresh_read_syncs_before_it_reads(
    behind: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    assert (await zookeeper_store.get("/a", fresh=True)).value == b"new"
    assert behind.requests == ["sync", "get"]


async def test_a_fresh_listing_syncs_before_it_reads(
    behind: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    assert await zookeeper_store.children("/", fresh=True) == ["a", "b"]
    assert behind.requests == ["sync", "children"]


async def test_a_fresh_read_sees_what_was_created(
    behind: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    with pytest.raises(NodeNotFoundError):
        await zookeeper_store.get("/b")
    assert (await zookeeper_store.get("/b", fresh=True)).value == b""


async def test_a_read_after_a_write_of_the_session_sees_everything_before_it(
    behind: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    await zookeeper_store.create("/c", b"")
    assert (await zookeeper_store.get("/a")).value == b"new"
    assert "sync" not in behind.requests


async def test_an_agreed_read_commits_before_it_reads(
    behind: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    assert (await zookeeper_store.get("/a", agreed=True)).value == b"new"
    assert await zookeeper_store.children("/", agreed=True) == ["a", "b"]
    assert behind.requests == ["multi", "get", "multi", "children"]
    assert (await zookeeper_store.get("/a")).version == 1, "it changed nothing"


async def test_a_sync_of_a_replaced_leader_brings_nothing_and_an_agreed_read_waits(
    behind: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    behind.standing = Standing.LEADER_REPLACED
    assert (await zookeeper_store.get("/a", fresh=True)).value == b"old"
    assert await zookeeper_store.children("/", fresh=True) == ["a"]
    reading = asyncio.create_task(zookeeper_store.get("/a", agreed=True))
    await until(lambda: "multi" in behind.requests)
    behind.standing = Standing.CURRENT
    behind.cut()  # as a leader does to its clients once it knows
    assert (await reading).value == b"new"


async def test_an_agreed_read_without_a_quorum_fails(
    behind: ScriptedZooKeeper, zookeeper_store: MetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    behind.standing = Standing.LEADER_REPLACED
    monkeypatch.setattr(zookeeper_store, "_operation_timeout_s", 0.2)
    with pytest.raises(StoreUnavailableError):
        await zookeeper_store.get("/a", agreed=True)


async def test_a_lost_connection_repeats_the_sync_with_the_read(
    behind: ScriptedZooKeeper, zookeeper_store: MetadataStore
) -> None:
    behind.standing = Standing.LEADER_REPLACED
    writing = asyncio.create_task(zookeeper_store.create("/c", b""))
    await until(lambda: "create" in behind.requests)
    reading = asyncio.create_task(
        zookeeper_store.get("/a", fresh=True)
    )  # it waits behind the write
    behind.standing = Standing.LAGGING
    behind.cut()
    with pytest.raises(Exception, match="connection"):
        await writing
    assert (await reading).value == b"new"
