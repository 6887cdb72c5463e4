"""Bookies that fence an open ledger by mistake, as after damage in their log: the writer checks it
by a fresh read of the metadata, and goes on without them (protocol 4.7, 4.9).
"""

import asyncio
from collections.abc import AsyncIterator

import pytest

from ledger_client import LedgerClient, LedgerFenced, LedgerFencedError, LedgerNotFoundError, Quorum
from ledger_client.errors import LedgerError, QuorumTimeoutError
from ledger_client.protocol.ensemble import FALSE_FENCES_MAX
from ledger_client.writing.writer import LedgerWriter
from tests.support.ledger_client.cluster import THREE, TestCluster, entries_of
from tests.support.metadata.scripted_faults import ScriptedFaults, is_read
from tests.until import until, within

THREE_MIN_TWO = Quorum.in_sync(3, 2)


@pytest.fixture
async def reads() -> AsyncIterator[tuple[TestCluster, ScriptedFaults]]:
    faults = ScriptedFaults(lambda call: is_read(call) and "/ledgers/" in call.path)
    cluster = TestCluster(faults)
    for _ in range(4):
        await cluster.add_bookie()
    yield cluster, faults
    faults.gate.set()
    await cluster.aclose()


def members(writer: LedgerWriter) -> tuple[str, ...]:
    return writer.info.fragments[-1].ensemble


def fence(cluster: TestCluster, writer: LedgerWriter, bookie_id: str) -> None:
    cluster.bookie(bookie_id).ledgers[writer.id].is_fenced = True


async def begun(client: LedgerClient, quorum: Quorum = THREE) -> LedgerWriter:
    writer = await client.create_ledger(quorum)
    await writer.append(b"before")
    await writer.wait_fully_replicated(0)
    return writer


@pytest.mark.parametrize("quorum", [THREE, Quorum.all(3)])
async def test_the_bookie_alone_is_replaced(cluster: TestCluster, quorum: Quorum) -> None:
    client = cluster.client()
    writer = await begun(client, quorum)
    first, *others = members(writer)
    fence(cluster, writer, first)
    pending = [writer.append_nowait(b"after") for _ in range(20)]
    assert await asyncio.gather(*pending) == list(range(1, 21))
    await until(lambda: first not in members(writer))
    assert set(others) < set(members(writer))
    await writer.aclose()
    assert LedgerFenced(writer.id) not in cluster.events
    assert (await client.ledger_info(writer.id)).last_entry_id == 20
    assert await entries_of(cluster.client(), writer.id, 20) == [b"before", *[b"after"] * 20]


async def test_a_member_leaves_and_a_spare_joins(cluster: TestCluster) -> None:
    client = cluster.client(spare_after_s=0.1)
    writer = await begun(client, THREE_MIN_TWO)
    first, *others = members(writer)
    fence(cluster, writer, first)
    assert await writer.append(b"after") == 1
    assert first not in members(writer)
    await until(lambda: len(writer.in_sync) == 3)
    assert set(others) < set(members(writer))
    assert first not in members(writer)
    await writer.aclose()


async def test_nothing_is_decided_while_the_metadata_are_away(
    reads: tuple[TestCluster, ScriptedFaults],
) -> None:
    cluster, faults = reads
    writer = await begun(cluster.client())
    first = members(writer)[0]
    faults.calls.clear()
    faults.gate.clear()
    fence(cluster, writer, first)
    pending = asyncio.ensure_future(writer.append(b"waits"))
    await until(lambda: bool(faults.calls))
    await asyncio.sleep(0.1)
    assert not pending.done()
    assert first in members(writer)
    with pytest.raises(QuorumTimeoutError):
        await writer.append(b"has a deadline", timeout=0.05)
    faults.gate.set()
    assert await within(pending) == 1
    assert first not in members(writer)
    await writer.aclose()


async def test_a_recovery_is_seen_once_the_metadata_are_back(
    reads: tuple[TestCluster, ScriptedFaults],
) -> None:
    cluster, faults = reads
    writer = await begun(cluster.client())
    await cluster.client().recover_ledger(writer.id)
    faults.calls.clear()
    faults.gate.clear()
    pending = asyncio.ensure_future(writer.append(b"late"))
    await until(lambda: bool(faults.calls))
    assert not pending.done()
    faults.gate.set()
    with pytest.raises(LedgerFencedError):
        await within(pending)


async def test_the_read_is_fresh(reads: tuple[TestCluster, ScriptedFaults]) -> None:
    """An old value would show the ledger open, and its true fence would count as a mistake."""
    cluster, faults = reads
    writer = await begun(cluster.client())
    faults.missed = 100
    await cluster.client().recover_ledger(writer.id)
    with pytest.raises(LedgerFencedError):
        await within(writer.append(b"late"))
    assert not writer._shell.protocol.false_fences


async def test_a_deleted_ledger_ends_the_writer(cluster: TestCluster) -> None:
    client = cluster.client()
    writer = await begun(client)
    fence(cluster, writer, members(writer)[0])
    await cluster.client().delete_ledger(writer.id)
    with pytest.raises(LedgerNotFoundError, match="deleted"):
        await writer.append(b"late")


async def test_too_many_of_them_end_the_writer(cluster: TestCluster) -> None:
    for _ in range(FALSE_FENCES_MAX):
        await cluster.add_bookie()
    client = cluster.client()
    writer = await begun(client)
    for _ in range(FALSE_FENCES_MAX):
        fence(cluster, writer, members(writer)[0])
        await writer.wait_fully_replicated(await writer.append(b"goes on"))
    fence(cluster, writer, members(writer)[0])
    with pytest.raises(LedgerError, match="5 bookies fence it although no client recovers it") as e:
        await writer.append(b"one too many")
    assert not isinstance(e.value, LedgerFencedError)
    assert e.value.outcome == "unknown"
    await until(lambda: writer.info.is_closed)
    info = await client.ledger_info(writer.id)
    assert (info.state, info.last_entry_id) == ("closed", FALSE_FENCES_MAX)
