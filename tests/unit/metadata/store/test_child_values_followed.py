"""A follower of a node's children: reads, delays, failures and its end, in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from metadata.errors import MetadataFormatError, StoreUnavailableError
from metadata.ids import Version
from metadata.store.child_values import READS_AT_ONCE_MAX, ChildValues
from metadata.store.interface import Stored
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from serving.overriding import override
from tests.unit.metadata.conftest import RETRIES, ScriptedFaults, taken_s
from tests.until import until

PARENT = "/bookies"
ONE, TWO = f"{PARENT}/one", f"{PARENT}/two"
JITTER_S = 10.0


class CountingStore(MemoryMetadataStore):
    """Store that counts its reads of values, and how many are in progress."""

    def __init__(self, server: MemoryMetadataServer) -> None:
        super().__init__(server)
        self.reads: list[str] = []
        self.running = 0
        self.most_running = 0

    @override
    async def get(self, path: str, *, fresh: bool = False, agreed: bool = False) -> Stored:
        self.reads.append(path)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await asyncio.sleep(0.001)
            return await super().get(path, fresh=fresh, agreed=agreed)
        finally:
            self.running -= 1


class Seen:
    """Values and absences that a follower reported, with their times."""

    def __init__(self) -> None:
        self.values: dict[str, bytes] = {}
        self.times: dict[str, float] = {}
        self.gone: list[str] = []

    def value(self, name: str, value: bytes) -> None:
        if value == b"damaged":
            raise MetadataFormatError(f"{PARENT}/{name}", "it is damaged")
        self.values[name] = value
        self.times[name] = asyncio.get_running_loop().time()

    def absence(self, name: str) -> None:
        del self.values[name]
        self.gone.append(name)

    def follow(self, store: MemoryMetadataStore, jitter_s: float = 0.0) -> ChildValues:
        rng = random.Random(3)
        return ChildValues(
            store, PARENT, rng, on_value=self.value, on_gone=self.absence, jitter_s=jitter_s
        )


@pytest.fixture
async def counting(server: MemoryMetadataServer) -> AsyncIterator[CountingStore]:
    store = CountingStore(server)
    yield store
    await store.aclose()


async def change(store: MemoryMetadataStore, path: str, value: bytes) -> None:
    await store.compare_and_set(path, value, (await store.get(path)).version)


async def test_each_value_is_read_once_and_a_limited_number_at_a_time(
    store: MemoryMetadataStore, counting: CountingStore
) -> None:
    paths = [f"{PARENT}/{number:03}" for number in range(2 * READS_AT_ONCE_MAX + 1)]
    for path in paths:
        await store.create(path, b"1")
    seen = Seen()
    followed = seen.follow(counting)
    await followed.start()
    assert len(seen.values) == len(paths)
    assert sorted(counting.reads) == paths
    assert counting.most_running == READS_AT_ONCE_MAX
    await followed.aclose()


async def test_nothing_is_reported_after_the_end(store: MemoryMetadataStore) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(store)
    await followed.start()
    await followed.aclose()
    await change(store, ONE, b"2")
    await store.create(TWO, b"1")
    await asyncio.sleep(1)
    assert seen.values == {"one": b"1"}


async def test_a_follower_that_was_not_started_can_be_closed(store: MemoryMetadataStore) -> None:
    await Seen().follow(store).aclose()


async def test_a_start_that_fails_follows_nothing_and_may_be_repeated(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(store)
    faults.failing_session, faults.failing_reads = store.session_id, 1
    with pytest.raises(StoreUnavailableError):
        await followed.start()
    faults.failing_reads = 0
    await change(other_store, ONE, b"2")
    await asyncio.sleep(1)
    assert seen.values == {}
    await followed.start()
    assert seen.values == {"one": b"2"}
    await change(other_store, ONE, b"3")
    await until(lambda: seen.values == {"one": b"3"})
    await followed.aclose()


async def test_reads_that_fail_are_repeated_after_growing_pauses(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(store)
    await followed.start()
    times = []
    for value in (b"2", b"3"):
        faults.failing_session, faults.failing_reads = store.session_id, RETRIES
        await change(other_store, ONE, value)
        wanted = {"one": value}
        times.append(await taken_s(until(lambda wanted=wanted: seen.values == wanted)))  # type: ignore[misc]
    assert min(times) > 1.0, "it pauses"
    assert max(times) < 4 * min(times), "the pauses begin small again after a success"
    await followed.aclose()


async def test_a_follower_whose_store_is_closed_reads_no_more(store: MemoryMetadataStore) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(store, JITTER_S)
    before = asyncio.all_tasks()
    await followed.start()
    assert len(asyncio.all_tasks() - before) == 1
    await change(store, ONE, b"2")
    await store.aclose()
    await asyncio.sleep(60)
    assert not asyncio.all_tasks() - before
    await followed.aclose()


async def test_a_node_that_is_deleted_before_it_is_read_is_reported_as_gone(
    store: MemoryMetadataStore, counting: CountingStore
) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(counting)
    await followed.start()
    await change(store, ONE, b"2")
    await until(lambda: counting.reads.count(ONE) == 2)
    await store.delete(ONE, Version(1))
    await until(lambda: seen.gone == ["one"])
    await followed.aclose()


async def test_a_value_that_cannot_be_read_hides_no_other(
    store: MemoryMetadataStore, caplog: pytest.LogCaptureFixture
) -> None:
    await store.create(ONE, b"damaged")
    await store.create(TWO, b"1")
    seen = Seen()
    followed = seen.follow(store)
    await followed.start()
    assert seen.values == {"two": b"1"}
    assert "it is damaged" in caplog.text
    await change(store, ONE, b"2")
    await until(lambda: seen.values == {"one": b"2", "two": b"1"})
    await followed.aclose()


async def test_changes_are_read_within_the_jitter_each_at_its_own_time(
    store: MemoryMetadataStore,
) -> None:
    names = [f"{number}" for number in range(8)]
    for name in names:
        await store.create(f"{PARENT}/{name}", b"1")
    seen = Seen()
    followed = seen.follow(store, JITTER_S)
    await followed.start()
    assert len(seen.values) == len(names), "the first read does not wait"
    began_s = asyncio.get_running_loop().time()
    for name in names:
        await change(store, f"{PARENT}/{name}", b"2")
    await asyncio.sleep(2 * JITTER_S)
    delays = sorted(seen.times[name] - began_s for name in names)
    assert set(seen.values.values()) == {b"2"}
    assert 0.1 < delays[0] < delays[-1] <= JITTER_S + 1
    assert delays[-1] - delays[0] > JITTER_S / 3
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
    store: MemoryMetadataStore,
) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(store, JITTER_S)
    await followed.start()
    await store.delete(ONE, Version(0))
    await followed.refresh()
    assert seen.gone == ["one"]
    await followed.aclose()
