"""A refresh of the values below a node: what it reads, and what it leaves to the follower."""

import asyncio

import pytest

from metadata.ids import Version
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.unit.metadata.store.test_child_values_followed import (
    JITTER_S,
    ONE,
    TWO,
    CountingStore,
    Seen,
    change,
    counting,
)
from tests.until import until

__all__ = ["counting"]  # a fixture


async def test_a_node_that_is_deleted_during_a_refresh_is_gone_before_its_news_arrive(
    store: MemoryMetadataStore, counting: CountingStore, faults: ScriptedFaults
) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(counting, JITTER_S)
    await followed.start()
    await change(store, ONE, b"2")
    await asyncio.sleep(0.1)  # the news of the change arrives
    faults.news_s = 60.0
    counting.gate = asyncio.Event()
    refreshing = asyncio.get_running_loop().create_task(followed.refresh())
    await until(lambda: counting.running == 1)
    await store.delete(ONE, Version(1))
    counting.gate.set()
    await refreshing
    await asyncio.sleep(1)
    assert seen.gone == ["one"]
    await followed.aclose()


async def test_a_node_whose_read_a_refresh_stops_is_read_before_its_news_arrive(
    store: MemoryMetadataStore, counting: CountingStore, faults: ScriptedFaults
) -> None:
    seen = Seen()
    followed = seen.follow(counting)
    await followed.start()
    faults.news_s = 60.0
    await store.create(ONE, b"1")
    counting.gate = asyncio.Event()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(followed.refresh(), 0.1)
    counting.gate.set()
    opened_s = asyncio.get_running_loop().time()
    await asyncio.sleep(1)
    assert seen.values == {"one": b"1"}
    assert seen.times == {"one": opened_s}, "it is due at once"
    await followed.aclose()


async def test_a_refresh_reads_what_is_delayed(store: MemoryMetadataStore) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(store, JITTER_S)
    await followed.start()
    await change(store, ONE, b"2")
    await store.create(TWO, b"1")
    await followed.refresh()
    assert seen.values == {"one": b"2", "two": b"1"}
    await followed.aclose()


@pytest.mark.usefixtures("stale_reads")
async def test_a_refresh_sees_names_that_a_lagging_server_lacks(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await other_store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(store, JITTER_S)
    await followed.start()
    faults.news_s = 60.0
    await other_store.delete(ONE, Version(0))
    await followed.refresh()
    assert seen.gone == ["one"]
    await followed.aclose()


async def test_a_value_that_is_read_after_the_end_is_not_reported(
    store: MemoryMetadataStore, counting: CountingStore
) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(counting, JITTER_S)
    await followed.start()
    await change(store, ONE, b"2")
    await asyncio.sleep(0.1)  # the news arrives
    counting.gate = asyncio.Event()
    refreshing = asyncio.get_running_loop().create_task(followed.refresh())
    await until(lambda: counting.running == 1)
    await followed.aclose()
    counting.gate.set()
    await refreshing
    assert seen.values == {"one": b"1"}
