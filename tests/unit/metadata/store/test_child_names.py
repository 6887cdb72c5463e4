"""Follower of names: every last change is seen, and an outage drops nothing."""

import asyncio
from random import Random

from metadata.store.child_names import ChildNames
from metadata.store.memory import MemoryMetadataStore
from tests.until import until

PARENT = "/parent"


async def test_names_are_followed_through_sessions(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: Random
) -> None:
    await store.create(PARENT, b"")
    followed = ChildNames(other_store, PARENT, rng, interval_s=0.0)
    followed.start()
    version = await store.create(f"{PARENT}/b", b"")
    await store.create(f"{PARENT}/a", b"")
    await until(lambda: followed.names == ("a", "b"))
    other_store.suspend()
    await store.delete(f"{PARENT}/b", version)
    await asyncio.sleep(1)
    assert followed.names == ("a", "b"), "the store does not answer"
    other_store.resume()
    await until(lambda: followed.names == ("a",))
    other_store.expire()
    await store.create(f"{PARENT}/c", b"")
    await until(lambda: followed.names == ("a", "c"))
    await followed.aclose()
    await store.create(f"{PARENT}/d", b"")
    await asyncio.sleep(1)
    assert followed.names == ("a", "c")


async def test_names_that_change_often_are_read_once_for_each_interval(
    store: MemoryMetadataStore, rng: Random
) -> None:
    await store.create(PARENT, b"")
    followed = ChildNames(store, PARENT, rng, interval_s=1000.0)
    followed.start()
    await until(lambda: followed._task is not None and not followed._wake.is_set())
    await asyncio.sleep(0)
    await store.create(f"{PARENT}/a", b"")
    await asyncio.sleep(1)
    assert not followed.names
    await followed.refresh()
    assert followed.names == ("a",)
    await followed.aclose()
