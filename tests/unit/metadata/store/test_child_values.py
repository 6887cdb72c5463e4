"""Tests of the follower of a node's children: callbacks that fail."""

import asyncio
from random import Random
from typing import Any

import pytest
from typing_extensions import override  # `typing` has it from 3.12 on

from metadata.store.child_values import ChildValues
from metadata.store.interface import Stored
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_server import MemoryMetadataServer
from tests.until import until

PARENT = "/bookies"


@pytest.mark.parametrize("failing", ["on_value", "on_gone"])
async def test_a_callback_that_raises_is_reported_and_the_values_are_followed_further(
    failing: str,
) -> None:
    store = MemoryMetadataStore(MemoryMetadataServer())
    values: dict[str, bytes] = {}
    reported: list[object] = []

    def report(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        reported.append(context["exception"])

    asyncio.get_running_loop().set_exception_handler(report)

    def on_value(name: str, value: bytes) -> None:
        values[name] = value
        if failing == "on_value" and name == "bad":
            raise LookupError(name)

    def on_gone(name: str) -> None:
        del values[name]
        if failing == "on_gone" and name == "bad":
            raise LookupError(name)

    for name in ("bad", "good"):
        await store.create(f"{PARENT}/{name}", b"1")
    followed = ChildValues(store, PARENT, Random(1), on_value=on_value, on_gone=on_gone)
    await followed.start()
    for name in ("bad", "good"):
        version = (await store.get(f"{PARENT}/{name}")).version
        await store.compare_and_set(f"{PARENT}/{name}", b"2", version)
    await until(lambda: values == {"bad": b"2", "good": b"2"})
    version = (await store.get(f"{PARENT}/bad")).version
    await store.delete(f"{PARENT}/bad", version)
    await until(lambda: "bad" not in values)
    await store.create(f"{PARENT}/late", b"1")
    await until(lambda: values == {"good": b"2", "late": b"1"})

    assert reported
    assert all(isinstance(each, LookupError) for each in reported)
    await followed.aclose()
    await store.aclose()


async def test_a_value_whose_read_is_given_up_by_a_refresh_is_read_by_the_follower() -> None:
    class SlowStore(MemoryMetadataStore):
        is_slow = True

        @override
        async def get(self, path: str, *, fresh: bool = False, agreed: bool = False) -> Stored:
            if self.is_slow and path.startswith(f"{PARENT}/"):
                await asyncio.Event().wait()
            return await super().get(path, fresh=fresh, agreed=agreed)

    store, values = SlowStore(MemoryMetadataServer()), dict[str, bytes]()
    followed = ChildValues(
        store, PARENT, Random(1), on_value=values.__setitem__, on_gone=lambda _: None, jitter_s=2.0
    )
    await followed.start()
    for name in ("one", "two"):
        await store.create(f"{PARENT}/{name}", b"1")
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(followed.refresh(), 0.05)
    store.is_slow = False
    await until(lambda: values == {"one": b"1", "two": b"1"})
    await followed.aclose()
    await store.aclose()


async def test_an_older_list_that_is_answered_later_removes_nothing() -> None:
    """Otherwise a bookie that has joined stays unknown until the next change (seed 1857051830)."""

    class ReorderingStore(MemoryMetadataStore):
        holds = False
        held = asyncio.Event()

        @override
        async def children(
            self, path: str, *, fresh: bool = False, agreed: bool = False
        ) -> list[str]:
            names = await super().children(path, fresh=fresh, agreed=agreed)
            if self.holds:
                self.holds = False
                await self.held.wait()
            return names

    store, values = ReorderingStore(MemoryMetadataServer()), dict[str, bytes]()
    followed = ChildValues(
        store,
        PARENT,
        Random(1),
        on_value=values.__setitem__,
        on_gone=values.__delitem__,
    )
    await followed.start()
    store.holds = True
    refreshing = asyncio.get_running_loop().create_task(followed.refresh())
    await until(lambda: not store.holds)
    await store.create(f"{PARENT}/one", b"1")
    await asyncio.sleep(0.05)
    store.held.set()
    await refreshing
    await until(lambda: values == {"one": b"1"})
    await asyncio.sleep(0.05)
    assert values == {"one": b"1"}
    await followed.aclose()
    await store.aclose()


async def test_a_change_during_the_read_of_a_value_is_read_too() -> None:
    class SlowStore(MemoryMetadataStore):
        answers: asyncio.Event | None = None

        @override
        async def get(self, path: str, *, fresh: bool = False, agreed: bool = False) -> Stored:
            found = await super().get(path, fresh=fresh, agreed=agreed)
            if self.answers is not None:
                read.set()
                await self.answers.wait()
            return found

    server, read = MemoryMetadataServer(), asyncio.Event()
    store, other = SlowStore(server), MemoryMetadataStore(server)
    values = dict[str, bytes]()
    followed = ChildValues(
        store, PARENT, Random(1), on_value=values.__setitem__, on_gone=lambda _: None
    )
    version = await other.create(f"{PARENT}/one", b"1")
    await followed.start()
    store.answers = asyncio.Event()
    version = await other.compare_and_set(f"{PARENT}/one", b"2", version)
    await read.wait()
    await other.compare_and_set(f"{PARENT}/one", b"3", version)
    await asyncio.sleep(0.05)  # the watch fires while the answer with b"2" is on its way
    store.answers.set()
    await until(lambda: values == {"one": b"3"})
    await followed.aclose()
    for metadata_store in (store, other):
        await metadata_store.aclose()
