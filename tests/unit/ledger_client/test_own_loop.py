"""Handles in another event loop, in another thread and after their loop has ended: each call is
refused at once (api, "Client").
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from typing import Any

import pytest

from ledger_client import (
    Chain,
    ClientClosedError,
    LedgerClient,
    LedgerRange,
    LedgerReader,
    LedgerWriter,
)
from tests.support.ledger_client.cluster import THREE, TestCluster

AT_ONCE_S = 2.0


class Handles:
    """Handles of one client, with the iterators that it has begun."""

    client: LedgerClient
    writer: LedgerWriter
    reader: LedgerReader
    chain: Chain
    begun: list[AsyncGenerator[object, None]]

    async def open(self, cluster: TestCluster) -> None:
        self.client = cluster.client()
        self.chain = self.client.chain("orders")
        await self.chain.create()
        self.writer = await self.client.create_ledger(THREE)
        await self.writer.append_many([b"0", b"1"])
        self.reader = await self.client.open_ledger(self.writer.id)
        self.begun = [
            self.reader.read(0, 1),
            self.reader.tail(),
            self.client.list_ledgers(),
            self.client.ledger_infos([0, 0]),
        ]
        for generator in self.begun:
            await anext(generator)


async def first_of(items: AsyncGenerator[object, None]) -> object:
    return await anext(items)


async def at_once(call: Callable[[], object]) -> object:
    found = call()
    return await found if isinstance(found, Awaitable) else found


CALLS: dict[str, Callable[[Handles], object]] = {
    "append": lambda h: h.writer.append(b"x"),
    "append, limited": lambda h: h.writer.append(b"x", timeout=1),
    "append_nowait": lambda h: h.writer.append_nowait(b"x"),
    "append_many": lambda h: h.writer.append_many([b"x"]),
    "wait_fully_replicated": lambda h: h.writer.wait_fully_replicated(0),
    "expect_stored": lambda h: h.writer.expect_stored(h.writer.last_pushed),
    "close the writer": lambda h: h.writer.aclose(),
    "abort": lambda h: h.writer.abort(),
    "read_entry": lambda h: h.reader.read_entry(0),
    "read": lambda h: first_of(h.reader.read()),
    "read_unconfirmed": lambda h: first_of(h.reader.read_unconfirmed(0, 0)),
    "tail": lambda h: first_of(h.reader.tail()),
    "refresh_last_confirmed": lambda h: h.reader.refresh_last_confirmed(),
    "learn_last_confirmed": lambda h: h.reader.learn_last_confirmed(),
    "wait_confirmed": lambda h: h.reader.wait_confirmed(1, timeout=60),
    "close the reader": lambda h: h.reader.aclose(),
    "create_ledger": lambda h: h.client.create_ledger(THREE),
    "open_ledger": lambda h: h.client.open_ledger(h.writer.id),
    "ledger_info": lambda h: h.client.ledger_info(h.writer.id),
    "ledger_infos": lambda h: first_of(h.client.ledger_infos([0])),
    "read_ranges": lambda h: first_of(h.client.read_ranges([LedgerRange(h.writer.id, 0, 0)])),
    "list_ledgers": lambda h: first_of(h.client.list_ledgers()),
    "recover_ledger": lambda h: h.client.recover_ledger(h.writer.id),
    "delete_ledger": lambda h: h.client.delete_ledger(h.writer.id),
    "list_chains": lambda h: h.client.list_chains(),
    "close the client": lambda h: h.client.aclose(),
    "chain.create": lambda h: h.chain.create(),
    "chain.info": lambda h: h.chain.info(),
    "chain.links": lambda h: first_of(h.chain.links(0, 1)),
    "continue a read": lambda h: first_of(h.begun[0]),
    "continue a tail": lambda h: first_of(h.begun[1]),
    "end a tail": lambda h: h.begun[1].aclose(),
    "continue a list": lambda h: first_of(h.begun[2]),
    "continue infos": lambda h: first_of(h.begun[3]),
}


async def refusals(handles: Handles) -> dict[str, str]:
    """Return, for each call, how it was refused."""
    found: dict[str, str] = {}
    for name, call in CALLS.items():
        try:
            async with asyncio.timeout(AT_ONCE_S):
                await at_once(lambda call=call: call(handles))  # type: ignore[misc]
        except ClientClosedError as error:
            found[name] = str(error)
        except Exception as error:  # noqa: BLE001 - the test shows it
            found[name] = f"{type(error).__name__}: {error}"
        else:
            found[name] = "not refused"
    return found


def in_thread(work: Callable[[], Any]) -> Any:
    results: list[Any] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


async def test_another_loop_is_refused_while_the_own_one_runs(cluster: TestCluster) -> None:
    """The other loop runs in a thread, as with `asyncio.run` in an executor."""
    handles = Handles()
    await handles.open(cluster)
    own = f"at {id(asyncio.get_running_loop()):#x}"

    def elsewhere() -> dict[str, str]:
        return asyncio.run(refusals(handles))

    found = await asyncio.to_thread(elsewhere)
    assert list(found) == list(CALLS)
    for name, text in found.items():
        assert "belongs to another event loop" in text, name
        assert own in text, name
        assert "ledger_client.sync" in text, name
    assert await handles.writer.append(b"still works") == 2
    assert (await handles.reader.read_entry(1)).data == b"1"
    for generator in handles.begun:
        await generator.aclose()
    await handles.reader.aclose()


async def test_a_thread_without_a_loop_is_refused(cluster: TestCluster) -> None:
    handles = Handles()
    await handles.open(cluster)

    def call() -> Iterator[str]:
        for name in ("append_nowait", "expect_stored"):
            with pytest.raises(ClientClosedError, match=r"`ledger_client\.sync`") as caught:
                CALLS[name](handles)
            yield str(caught.value)

    assert all("no loop runs" in each for each in in_thread(lambda: list(call())))
    for generator in handles.begun:
        await generator.aclose()
    await handles.reader.aclose()


def test_a_handle_of_a_closed_loop_is_refused() -> None:
    handles = Handles()

    async def first() -> None:
        cluster = TestCluster()
        for _ in range(3):
            await cluster.add_bookie()
        await handles.open(cluster)
        for generator in handles.begun:
            await generator.aclose()
        for bookie in cluster.bookies:
            await bookie.unregister()
            await bookie.stop()

    asyncio.run(first())
    found = asyncio.run(refusals(handles))
    for name, text in found.items():
        assert "which is closed: create a client in the running loop" in text, name


async def test_closing_again_in_another_loop_does_nothing(cluster: TestCluster) -> None:
    client = cluster.client()
    writer = await client.create_ledger(THREE)
    reader = await client.open_ledger(writer.id)
    await client.aclose()

    async def close() -> None:
        await reader.aclose()
        await client.aclose()

    await asyncio.to_thread(lambda: asyncio.run(close()))
