"""Arming of one-shot watches: none is missed, none is left at the server, and not all are armed at
once.
"""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest

from metadata.store.uri import parse_metadata_uri
from metadata.store.zookeeper.session import PRUNE_AFTER, ZooKeeperSession
from metadata.store.zookeeper.watches import (
    ARMS_BURST,
    ARMS_PER_S,
    WatchEntry,
    WatchKind,
    WatchTable,
)


class Server:
    """Server with one-shot watches, which drops them on demand."""

    def __init__(self) -> None:
        self.states: dict[str, int] = {}
        self.armed: dict[str, WatchEntry] = {}
        self.arm_count = 0
        self.fails = False

    async def arm(self, entry: WatchEntry) -> int:
        await asyncio.sleep(0)
        self.arm_count += 1
        if self.fails:
            raise ConnectionError
        self.armed[entry.path] = entry
        return self.states.get(entry.path, -1)

    def change(self, path: str) -> None:
        self.states[path] = self.states.get(path, -1) + 1
        entry = self.armed.pop(path, None)
        if entry is not None:
            entry.fire()


class Calls:
    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def server() -> Server:
    return Server()


@pytest.fixture
async def table(server: Server) -> AsyncIterator[WatchTable]:
    table = WatchTable(server.arm)
    table.rearm_all()
    yield table
    await table.aclose()


async def test_each_change_is_reported_and_the_watch_armed_again(
    server: Server, table: WatchTable
) -> None:
    calls = Calls()
    table.add("/a", WatchKind.VALUE, calls)
    for _ in range(5):
        await asyncio.sleep(1)
        before = calls.count
        server.change("/a")
        assert calls.count == before + 1


async def test_a_change_before_the_watch_is_armed_again_is_reported(
    server: Server, table: WatchTable
) -> None:
    calls = Calls()
    table.add("/a", WatchKind.VALUE, calls)
    await asyncio.sleep(1)
    server.change("/a")
    server.change("/a")
    before = calls.count
    await asyncio.sleep(1)
    assert calls.count == before + 1


async def test_a_new_callback_of_an_armed_watch_runs_once(
    server: Server, table: WatchTable
) -> None:
    """It may have read the value before the change that the others received."""
    table.add("/a", WatchKind.VALUE, Calls())
    await asyncio.sleep(1)
    late = Calls()
    table.add("/a", WatchKind.VALUE, late)
    await asyncio.sleep(1)
    assert (late.count, server.arm_count) == (1, 1)


async def test_a_watch_cancelled_in_its_callback_is_not_armed_again(
    server: Server, table: WatchTable
) -> None:
    cancel = table.add("/a", WatchKind.VALUE, lambda: None)
    await asyncio.sleep(1)
    server.change("/a")
    cancel()
    cancel()
    await asyncio.sleep(1)
    assert server.armed == {}


async def test_callbacks_of_a_path_share_one_watch(server: Server, table: WatchTable) -> None:
    many = [Calls() for _ in range(10)]
    for calls in many:
        table.add("/a", WatchKind.VALUE, calls)
    await asyncio.sleep(1)
    assert server.arm_count == 1
    server.change("/a")
    assert [calls.count > 0 for calls in many] == [True] * 10


async def test_a_suspension_arms_and_calls_all_watches(server: Server, table: WatchTable) -> None:
    calls = Calls()
    table.add("/a", WatchKind.VALUE, calls)
    await asyncio.sleep(1)
    table.disconnected()
    server.armed.clear()
    before = calls.count
    await asyncio.sleep(1)
    assert server.armed == {}
    table.rearm_all()
    await asyncio.sleep(1)
    assert calls.count == before + 1
    assert list(server.armed) == ["/a"]


async def test_arming_that_failed_is_repeated(server: Server, table: WatchTable) -> None:
    server.fails = True
    calls = Calls()
    table.add("/a", WatchKind.VALUE, calls)
    await asyncio.sleep(1)
    assert calls.count == 0
    server.fails = False
    await asyncio.sleep(1)
    assert calls.count == 1


async def test_arming_is_limited(server: Server, table: WatchTable) -> None:
    for number in range(3 * ARMS_PER_S):
        table.add(f"/{number}", WatchKind.VALUE, lambda: None)
    await asyncio.sleep(1)
    assert server.arm_count <= ARMS_BURST + ARMS_PER_S + 1
    await asyncio.sleep(3)
    assert len(server.armed) == 3 * ARMS_PER_S


async def test_many_watches_of_one_holder_delay_no_other(server: Server, table: WatchTable) -> None:
    for number in range(10 * ARMS_PER_S):
        table.add(f"/{number}", WatchKind.VALUE, lambda: None, "mallory")
    await asyncio.sleep(0.1)
    calls = Calls()
    table.add("/of-alice", WatchKind.VALUE, calls, "alice")
    table.add("/9", WatchKind.VALUE, lambda: None, "alice")
    last = f"/{10 * ARMS_PER_S - 1}"
    table.add(last, WatchKind.VALUE, lambda: None, "alice")
    await asyncio.sleep(0.1)
    assert {"/of-alice", last} <= set(server.armed), "also what mallory's queue has last"
    server.change("/of-alice")
    server.change("/of-alice")
    before = calls.count
    await asyncio.sleep(0.2)
    assert calls.count == before + 1
    assert len(server.armed) < ARMS_PER_S, "mallory's are not done yet"


async def test_watches_of_a_holder_that_has_gone_do_not_wait(
    server: Server, table: WatchTable
) -> None:
    cancels = [
        table.add(f"/{number}", WatchKind.VALUE, lambda: None, "mallory")
        for number in range(10 * ARMS_PER_S)
    ]
    both = f"/{10 * ARMS_PER_S - 1}"
    table.add(both, WatchKind.VALUE, lambda: None, "mallory")
    for cancel in cancels:
        cancel()
        cancel()
    await asyncio.sleep(1)
    assert set(server.armed) == {both}, "it has another callback"
    assert server.arm_count == 1


async def test_a_callback_that_raises_keeps_neither_the_others_nor_the_watch_from_working(
    server: Server, table: WatchTable
) -> None:
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reports.append(what))

    def fail() -> None:
        raise LookupError("a")

    calls = Calls()
    table.add("/a", WatchKind.VALUE, fail)
    table.add("/a", WatchKind.VALUE, calls)
    await asyncio.sleep(1)
    for _ in range(3):
        before = calls.count
        server.change("/a")
        assert calls.count == before + 1
        await asyncio.sleep(1)
    assert len(reports) == 1, "one callback is reported once"


async def test_a_cancelled_watch_is_dropped_at_the_client(server: Server) -> None:
    dropped: list[tuple[str, bool]] = []
    table = WatchTable(server.arm, lambda entry, is_quiet: dropped.append((entry.path, is_quiet)))
    table.rearm_all()
    cancel = table.add("/a", WatchKind.VALUE, lambda: None)
    other = table.add("/a", WatchKind.VALUE, lambda: None)
    await asyncio.sleep(1)
    cancel()
    assert dropped == [], "another callback needs it"
    other()
    other()
    assert dropped == [("/a", True)]
    table.add("/b", WatchKind.VALUE, lambda: None)()  # cancelled before it is armed
    cancel = table.add("/c", WatchKind.CHILDREN, lambda: None)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    cancel()
    await asyncio.sleep(1)
    assert dropped[-1] == ("/c", True), "also if it was armed after it was cancelled"
    await table.aclose()


async def test_kazoo_keeps_neither_the_function_nor_the_path() -> None:
    uri = parse_metadata_uri("zk://127.0.0.1:1/quire")
    session = ZooKeeperSession(uri, 10.0, Random(1), lambda _: None)
    tables = session._client
    kept = session.watcher(lambda: None)
    tables._data_watchers["/quire/kept"].add(kept)
    for number in range(PRUNE_AFTER):
        watcher = session.watcher(lambda: None)
        tables._data_watchers[f"/quire/{number}"].add(watcher)
        session.drop_watcher(f"/{number}", watcher, may_prune=True)
    assert dict(tables._data_watchers) == {"/quire/kept": {kept}}
    assert not tables._child_watchers
