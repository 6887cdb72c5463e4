"""Reads end within their timeouts, whatever else is silent."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ledger_client.bookies.pool import CallFailure
from ledger_client.errors import EntryNotFoundError, LedgerError, QuorumTimeoutError
from ledger_client.reading.reader import LedgerReader
from tests.support.ledger_client.cluster import THREE, TestCluster
from tests.support.ledger_client.recovery_world import World
from tests.support.ledger_client.recovery_world import run as run_world
from tests.unit.ledger_client.reading.test_reader import check, fill, open_reader

LIMIT_S = 0.3
MARGIN_S = 0.1


async def took_s(call: Awaitable[object]) -> float:
    loop = asyncio.get_running_loop()
    began_at = loop.time()
    with pytest.raises(LedgerError) as raised:
        await call
    assert raised.value.retriable
    return loop.time() - began_at


async def read_all(reader: LedgerReader, first: int, last: int | None) -> None:
    async for _ in reader.read(first, last, timeout=LIMIT_S):
        pass


CALLS: list[Callable[[LedgerReader], Awaitable[object]]] = [
    lambda reader: reader.read_entry(3, timeout=LIMIT_S),
    lambda reader: reader.read_entry(30, timeout=LIMIT_S),
    lambda reader: read_all(reader, 0, 3),
    lambda reader: read_all(reader, 0, 30),
    lambda reader: reader.refresh_last_confirmed(timeout=LIMIT_S),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_ends_in_time_while_everything_is_silent(
    call: Callable[[LedgerReader], Awaitable[object]],
) -> None:
    async def scenario(world: World) -> None:
        fill(world, 20)
        async with await open_reader(world) as reader:
            world.store.suspend()
            for name in "abc":
                world.bookies[name].failure = CallFailure.TIMEOUT
            assert await took_s(call(reader)) <= LIMIT_S + MARGIN_S
            world.store.resume()

    run_world(scenario)


def test_the_lac_is_read_while_the_metadata_service_is_silent() -> None:
    async def scenario(world: World) -> None:
        fill(world, 20)
        async with await open_reader(world) as reader:
            world.store.suspend()
            assert await reader.refresh_last_confirmed(timeout=1.0) == 19
            check([batch async for batch in reader.read(0, 19, timeout=1.0)], 0, 19)
            world.store.resume()

    run_world(scenario)


def test_an_entry_that_may_have_moved_is_not_called_missing() -> None:
    """A repair moved it, and the time is up before the metadata says so."""

    async def scenario(world: World) -> None:
        fill(world, 20)
        async with await open_reader(world) as reader:
            world.store.suspend()
            for name in "abc":
                world.bookies[name].entries.clear()
            with pytest.raises(QuorumTimeoutError, match="a repair may have moved it"):
                await reader.read_entry(3, timeout=LIMIT_S)
            world.store.resume()
            with pytest.raises(EntryNotFoundError):
                await reader.read_entry(3)

    run_world(scenario)


@pytest.mark.parametrize("is_closed", [False, True])
async def test_a_ledger_is_opened_in_time(cluster: TestCluster, is_closed: bool) -> None:
    writer = await cluster.client().create_ledger(THREE)
    await writer.append(b"a")
    if is_closed:
        await writer.aclose()
    client, loop = cluster.client(), asyncio.get_running_loop()
    await client.ledger_info(writer.id)
    for bookie in cluster.bookies:
        bookie.is_silent = True
    began_at = loop.time()
    async with client.open_ledger(writer.id, timeout=LIMIT_S) as reader:
        assert loop.time() - began_at <= LIMIT_S + MARGIN_S
        with pytest.raises(QuorumTimeoutError):
            await reader.read_entry(0, timeout=LIMIT_S)
    for bookie in cluster.bookies:
        bookie.is_silent = False


async def test_a_first_call_ends_in_time(cluster: TestCluster) -> None:
    client = cluster.client()
    cluster.stores[-1].suspend()
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: client.open_ledger(1, timeout=LIMIT_S),
        lambda: client.create_ledger(THREE, timeout=LIMIT_S),
        lambda: client.ledger_info(1, timeout=LIMIT_S),
        lambda: client.delete_ledger(1, timeout=LIMIT_S),
    ]
    for call in calls:
        assert await took_s(call()) <= LIMIT_S + MARGIN_S
    cluster.stores[-1].resume()
