"""The public interface, over in-memory bookies and metadata: main paths, blocks and ends (5.6, 6.1,
7.1, 10.1).
"""

import asyncio
import gc
import os

import pytest

from ledger_client import (
    BookieConnected,
    BookieDeparted,
    ClientClosedError,
    EnsembleChanged,
    LedgerClient,
    LedgerClosedError,
    LedgerFenced,
    LedgerFencedError,
    LedgerNotFoundError,
    LedgerRecovered,
    LedgerState,
    Quorum,
)
from ledger_client.ledger_calls import Found, LedgerCalls
from ledger_client.recovery.recoverer import Recoverer, StoredMetadata
from metadata.ids import EntryId, LedgerId
from tests.support.ledger_client.cluster import THREE, TestCluster, entries_of
from tests.until import until

# -- the main path ---------------------------------------------------------------------------------


@pytest.mark.parametrize("digest", ["crc32c", "hmac-sha256"])
async def test_append_close_and_read(cluster: TestCluster, digest: str) -> None:
    async with cluster.client() as client:
        async with client.create_ledger(
            THREE, metadata={"app": "orders"}, digest=digest, password=b"a secret password"
        ) as ledger:
            assert await ledger.append(b"order-1") == 0
            assert await ledger.append_many([b"order-2", b"order-3"]) == range(1, 3)
            assert await ledger.append_nowait(b"order-4") == 3
            await ledger.wait_fully_replicated(3)
            assert ledger.last_confirmed == ledger.last_pushed == 3
        info = await client.ledger_info(ledger.id)
        assert (info.state, info.last_entry_id, info.length) == ("closed", 3, 28)
        assert info.state is LedgerState.CLOSED
        assert info.metadata == {"app": "orders"}
        assert info.is_closed
        assert list(info.bookies) == list(info.fragments[0].ensemble)
        found = await entries_of(client, ledger.id, 3, b"a secret password")
        assert found == [b"order-1", b"order-2", b"order-3", b"order-4"]


async def test_awaited_handles_and_explicit_closes(cluster: TestCluster) -> None:
    client = cluster.client()  # connects at its first use
    ledger = await client.create_ledger(Quorum.majority(3), ledger_id=77)
    assert ledger.id == 77
    await ledger.append(b"one")
    reader = await client.open_ledger(77)
    assert (await reader.read_entry(0)).data == b"one"
    await reader.aclose()
    await ledger.aclose()
    assert client.stats().writers_open == 0
    assert client.stats().ledgers_created == client.stats().ledgers_opened == 1
    assert client.stats().adds_sent == 3
    await client.aclose()
    await client.aclose()
    assert client.stats().adds_sent == 3, "the last snapshot stays"


async def test_the_quorum_shorthands() -> None:
    assert Quorum.all(3) == Quorum(3, 3, 3)
    assert Quorum.majority(3) == Quorum(3, 3, 2)
    assert Quorum.majority(5).ack == 3
    with pytest.raises(ValueError, match="ensemble >= write >= ack"):
        Quorum(2, 3, 1)
    with pytest.raises(ValueError, match="min_in_sync"):
        Quorum.in_sync(3, 4)
    with pytest.raises(ValueError, match="ack must be a number, got True"):
        Quorum(3, 3, True)
    with pytest.raises(ValueError, match="stripe_entries must be at most"):
        Quorum(3, 3, 2, stripe_entries=10**30)
    with pytest.raises(ValueError, match="replica_lag_time_max must be a number"):
        Quorum.in_sync(3, 2, replica_lag_time_max=True)


async def test_listing_is_in_order_and_streams(cluster: TestCluster) -> None:
    async with cluster.client() as client:
        for ledger_id in [5, 70_000, 3, *range(100, 140)]:
            async with client.create_ledger(Quorum.all(1), ledger_id=ledger_id):
                pass
        found = [info.id async for info in client.list_ledgers()]
        assert found == [3, 5, *range(100, 140), 70_000]
        assert [info.id async for info in client.list_ledgers(start=138)] == [138, 139, 70_000]


async def test_a_deleted_ledger_is_gone(cluster: TestCluster) -> None:
    async with cluster.client() as client:
        async with client.create_ledger(THREE) as ledger:
            await ledger.append(b"x")
        await client.delete_ledger(ledger.id)
        for call in (
            client.ledger_info(ledger.id),
            client.delete_ledger(ledger.id),
            client.recover_ledger(ledger.id),
        ):
            with pytest.raises(LedgerNotFoundError) as caught:
                await call
            assert caught.value.ledger_id == ledger.id
        with pytest.raises(LedgerNotFoundError):
            await client.open_ledger(ledger.id)


async def test_recovery_fences_and_keeps_what_was_confirmed(cluster: TestCluster) -> None:
    writing, recovering = cluster.client(), cluster.client()
    ledger = await writing.create_ledger(THREE)
    await ledger.append_many([b"%d" % number for number in range(10)])
    info = await recovering.recover_ledger(ledger.id)
    assert (info.state, info.last_entry_id, info.length) == ("closed", 9, 10)
    with pytest.raises(LedgerFencedError) as caught:
        await ledger.append(b"late")
    assert caught.value.outcome == "unknown"
    assert LedgerFenced(ledger.id) in cluster.events
    assert LedgerRecovered(ledger.id, EntryId(9)) in cluster.events
    assert await recovering.recover_ledger(ledger.id) == info, "again: it is closed already"
    assert await entries_of(recovering, ledger.id, 9) == [b"%d" % number for number in range(10)]
    assert writing.stats().ledgers_fenced == 1
    assert recovering.stats().ledgers_recovered == 1


async def test_a_lost_bookie_is_replaced(cluster: TestCluster) -> None:
    async with cluster.client() as client, client.create_ledger(THREE) as ledger:
        await ledger.append(b"before")
        lost = ledger.info.fragments[0].ensemble[1]
        await cluster.bookie(lost).stop()
        await ledger.append(b"after")
        await until(lambda: lost not in ledger.info.fragments[-1].ensemble)
        await ledger.append(b"more")
        changes = [event for event in cluster.events if isinstance(event, EnsembleChanged)]
        assert [(event.ledger_id, event.replaced) for event in changes] == [(ledger.id, (lost,))]
        assert client.stats().ensemble_changes == 1
        assert client.stats().connections_failed >= 1
        assert await entries_of(client, ledger.id, 2) == [b"before", b"after", b"more"]


async def test_a_bookie_that_leaves_the_registration_is_replaced_while_idle(
    cluster: TestCluster,
) -> None:
    # All of three, so that the writer waits for no other bookie once its append is answered.
    async with cluster.client() as client, client.create_ledger(Quorum.all(3)) as ledger:
        await ledger.append(b"before")
        leaving = ledger.info.fragments[0].ensemble[0]
        await cluster.bookie(leaving).unregister()
        await until(lambda: leaving not in ledger.info.fragments[-1].ensemble)
        assert BookieDeparted(leaving) in cluster.events


async def test_a_bookie_that_left_is_replaced_once_there_is_a_spare() -> None:
    cluster = TestCluster()
    for _ in range(3):
        await cluster.add_bookie()
    async with cluster.client() as client, client.create_ledger(THREE) as ledger:
        await ledger.append(b"before")
        leaving = ledger.info.fragments[0].ensemble[0]
        await cluster.bookie(leaving).unregister()
        await until(lambda: BookieDeparted(leaving) in cluster.events)
        spare = await cluster.add_bookie()
        await until(lambda: ledger.info.fragments[-1].ensemble[0] == spare.id)
    await cluster.aclose()


async def test_a_fenced_writer_raises_also_after_it_is_closed(cluster: TestCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger(THREE)
    await client.recover_ledger(writer.id)
    for _ in range(2):
        with pytest.raises(LedgerFencedError):
            await writer.append(b"x")
        with pytest.raises(LedgerFencedError):
            await writer.append_many([b"x"])
        with pytest.raises(LedgerFencedError):
            await writer.aclose()


async def test_events_of_connections(cluster: TestCluster) -> None:
    async with cluster.client() as client, client.create_ledger(Quorum.all(3)) as ledger:
        await ledger.append(b"x")
        connected = [e for e in cluster.events if isinstance(e, BookieConnected)]
        assert sorted(e.bookie_id for e in connected) == sorted(ledger.info.bookies)


# -- blocks, exceptions, cancellation ------------------------------------------------------------


async def test_an_exception_in_the_block_is_not_hidden(cluster: TestCluster) -> None:
    client = cluster.client()
    with pytest.raises(ZeroDivisionError):
        async with client.create_ledger(THREE, ledger_id=9) as ledger:
            await ledger.append(b"x")
            raise ZeroDivisionError
    info = await client.ledger_info(9)
    assert (info.state, info.last_entry_id) == ("closed", 0)


async def test_a_cancelled_block_still_closes(cluster: TestCluster) -> None:
    client, inside = cluster.client(), asyncio.Event()

    async def work() -> None:
        async with client.create_ledger(THREE, ledger_id=9) as ledger:
            await ledger.append(b"x")
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.create_task(work())
    await inside.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert (await client.ledger_info(9)).state == "closed"


async def test_closing_the_client_closes_its_writers(cluster: TestCluster) -> None:
    client = cluster.client()
    ledger = await client.create_ledger(THREE, ledger_id=9)
    await ledger.append(b"x")
    reader = await client.open_ledger(9)
    await client.aclose()
    assert (await cluster.client().ledger_info(9)).state == "closed"
    with pytest.raises(LedgerClosedError):
        await ledger.append(b"y")
    with pytest.raises(LedgerClosedError):
        await reader.read_entry(0)


async def test_a_reader_that_was_dropped_does_not_keep_the_client(cluster: TestCluster) -> None:
    client = cluster.client()
    async with client.create_ledger(Quorum.all(1)) as ledger:
        await ledger.append(b"x")
    reader = await client.open_ledger(ledger.id)
    await reader.aclose()
    del reader
    gc.collect()
    await client.aclose()


async def test_a_closed_client_raises(cluster: TestCluster) -> None:
    client = cluster.client()
    await client.aclose()
    for call in (client.ledger_info(1), client.recover_ledger(1), client.delete_ledger(1)):
        with pytest.raises(ClientClosedError):
            await call
    with pytest.raises(ClientClosedError):
        await client.open_ledger(1)
    with pytest.raises(ClientClosedError):
        await client.create_ledger(THREE)
    with pytest.raises(ClientClosedError):
        [info async for info in client.list_ledgers()]


async def test_after_a_fork_the_client_raises(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = cluster.client()
    with pytest.raises(LedgerNotFoundError):
        await client.ledger_info(1)
    with monkeypatch.context() as forked:
        forked.setattr(os, "getpid", lambda: -1)
        with pytest.raises(ClientClosedError, match="before a fork"):
            await client.ledger_info(1)
        await client.aclose()  # does not use the parent's connections
    with pytest.raises(LedgerNotFoundError):
        await client.ledger_info(1)


def test_a_client_belongs_to_one_loop() -> None:
    made: list[LedgerClient] = []

    async def first() -> None:
        cluster = TestCluster()
        client = cluster.client()
        made.append(client)
        with pytest.raises(LedgerNotFoundError):
            await client.ledger_info(1)
        await cluster.aclose()
        client._session._closing = None

    async def second() -> None:
        with pytest.raises(ClientClosedError, match=r"event loop .* which is closed"):
            await made[0].ledger_info(1)

    asyncio.run(first())
    asyncio.run(second())


async def test_the_timeout_of_a_recovery_is_that_of_all_its_steps(
    cluster: TestCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    find, recover, given = LedgerCalls.find, Recoverer.recover, list[float]()

    async def slow(
        self: LedgerCalls, ledger_id: LedgerId, password: bytes, timeout_s: float
    ) -> Found:
        await asyncio.sleep(4.0)
        return await find(self, ledger_id, password, timeout_s)

    async def recorded(self: Recoverer, *, timeout_s: float | None = None) -> StoredMetadata:
        assert timeout_s is not None
        given.append(timeout_s)
        return await recover(self, timeout_s=timeout_s)

    async with cluster.client() as client, cluster.client() as other:
        writer = await client.create_ledger(Quorum.all(1))
        monkeypatch.setattr(LedgerCalls, "find", slow)
        monkeypatch.setattr(Recoverer, "recover", recorded)
        assert (await other.recover_ledger(writer.id, timeout=10.0)).is_closed
    assert given == [pytest.approx(6.0, abs=1.0)]
