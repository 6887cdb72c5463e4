"""Contract of the watches of metadata stores, a part of `metadata_store`."""

import asyncio

from metadata.ids import Version
from metadata.store.interface import (
    SessionState,
)
from tests.contracts.store_service import Signal, StoreService, eventually, settle
from tests.until import WAIT_S


class MetadataWatchContract:
    """Tests to inherit in a class with a `service` fixture."""

    async def test_value_watch_reports_each_kind_of_change(self, service: StoreService) -> None:
        one, other = await service.connect(), await service.connect()
        signal = Signal()
        await one.create("/p", b"")
        one.watch_value("/p/a", signal)
        await settle(one)
        signal.clear()
        await other.create("/p/a", b"")
        await signal.wait()
        await settle(one)
        signal.clear()
        await other.compare_and_set("/p/a", b"1", Version(0))
        await signal.wait()
        await settle(one)
        signal.clear()
        await other.delete("/p/a", Version(1))
        await signal.wait()

    async def test_watcher_reads_the_reported_change(self, service: StoreService) -> None:
        one, other = await service.connect(), await service.connect()
        await other.create("/a", b"0")
        signal = Signal()
        one.watch_value("/a", signal)
        for number in range(1, 30):
            await other.compare_and_set("/a", b"%d" % number, Version(number - 1))
        async with asyncio.timeout(WAIT_S):
            while (await one.get("/a")).value != b"29":
                await signal.wait()

    async def test_a_children_watch(self, service: StoreService) -> None:
        one, other = await service.connect(), await service.connect()
        signal = Signal()
        one.watch_children("/p", signal)
        await settle(one)
        signal.clear()
        await other.create("/p/a", b"")
        await signal.wait()
        await settle(one)
        signal.clear()
        await other.create("/p/b", b"")
        await signal.wait()
        assert await one.children("/p", fresh=True) == ["a", "b"]

    async def test_two_watches_of_one_path_are_both_called(self, service: StoreService) -> None:
        store = await service.connect()
        await store.create("/a", b"")
        first, second = Signal(), Signal()
        cancel = store.watch_value("/a", first)
        store.watch_value("/a", second)
        await settle(store)
        first.clear()
        second.clear()
        await store.compare_and_set("/a", b"1", Version(0))
        await first.wait()
        await second.wait()
        cancel()
        await settle(store)
        told = first.count
        second.clear()
        await store.compare_and_set("/a", b"2", Version(1))
        await second.wait()
        assert first.count == told

    async def test_a_cancelled_watch_is_silent(self, service: StoreService) -> None:
        store = await service.connect()
        await store.create("/a", b"")
        signal = Signal()
        cancel = store.watch_value("/a", signal)
        await settle(store)
        cancel()
        told = signal.count
        await store.compare_and_set("/a", b"1", Version(0))
        await settle(store)
        assert signal.count == told

    async def test_watches_survive_an_interruption(self, service: StoreService) -> None:
        one, other = await service.connect(), await service.connect()
        await one.create("/a", b"0")
        value, names = Signal(), Signal()
        one.watch_value("/a", value)
        one.watch_children("/p", names)
        await settle(one)
        value.clear()
        names.clear()
        await service.interrupt(one)
        await value.wait()
        await names.wait()
        await settle(one)
        value.clear()
        names.clear()
        await other.compare_and_set("/a", b"1", Version(0))
        await other.create("/p/x", b"")
        await value.wait()
        await names.wait()

    async def test_watches_survive_an_expiry(self, service: StoreService) -> None:
        one, other = await service.connect(), await service.connect()
        await one.create("/a", b"0")
        signal = Signal()
        one.watch_value("/a", signal)
        await settle(one)
        signal.clear()
        await service.expire(one)
        await signal.wait()
        await eventually(lambda: one.session_state is SessionState.CONNECTED)
        await settle(one)
        signal.clear()
        await other.compare_and_set("/a", b"1", Version(0))
        await signal.wait()
