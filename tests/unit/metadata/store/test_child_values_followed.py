"""A follower of a node's children: reads, delays, failures and its end, in virtual time."""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from metadata.errors import MetadataFormatError, StoreUnavailableError
from metadata.ids import Version
from metadata.store.child_values import READS_AT_ONCE_MAX, ChildValues
from metadata.store.interface import Cancel, Stored, WatchCallback
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.server.overriding import override
from tests.support.metadata.scripted_faults import ScriptedFaults, reads_of
from tests.unit.metadata.conftest import taken_s
from tests.until import until

PARENT = "/bookies"
ONE, TWO = f"{PARENT}/one", f"{PARENT}/two"
JITTER_S = 10.0
FAILURES = 5
PAUSES_S = (0.7, 1.7)
"""Bounds of the time of FAILURES pauses of a new `Backoff`, half of each at random."""


class CountingStore(MemoryMetadataStore):
    """Store that counts its reads, how many are in progress, and the watches that are registered.

    While `gate` is an event, reads of values wait for it.
    """

    def __init__(self, server: MemoryMetadataServer) -> None:
        super().__init__(server)
        self.reads: list[str] = []
        self.lists: list[bool] = []
        """For each read of names, whether it was fresh."""
        self.running = 0
        self.most_running = 0
        self.watches = 0
        self.gate: asyncio.Event | None = None

    @override
    async def get(self, path: str, *, fresh: bool = False, agreed: bool = False) -> Stored:
        self.reads.append(path)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            if self.gate is not None:
                await self.gate.wait()
            return await super().get(path, fresh=fresh, agreed=agreed)
        finally:
            self.running -= 1

    @override
    async def children(self, path: str, *, fresh: bool = False, agreed: bool = False) -> list[str]:
        self.lists.append(fresh)
        return await super().children(path, fresh=fresh, agreed=agreed)

    @override
    def watch_value(self, path: str, callback: WatchCallback, *, holder: str = "") -> Cancel:
        return self._counted(super().watch_value(path, callback, holder=holder))

    @override
    def watch_children(self, path: str, callback: WatchCallback, *, holder: str = "") -> Cancel:
        return self._counted(super().watch_children(path, callback, holder=holder))

    def _counted(self, cancel: Cancel) -> Cancel:
        self.watches += 1

        def cancel_one() -> None:
            self.watches -= 1
            cancel()

        return cancel_one


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
    await asyncio.sleep(60)
    assert counting.lists == [True]
    assert len(counting.reads) == len(paths)
    await followed.aclose()


async def test_nothing_is_reported_after_the_end(
    store: MemoryMetadataStore, counting: CountingStore
) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(counting)
    before = asyncio.all_tasks()
    await followed.start()
    assert counting.watches == 2
    await followed.aclose()
    assert counting.watches == 0
    assert not asyncio.all_tasks() - before
    await change(store, ONE, b"2")
    await store.create(TWO, b"1")
    await asyncio.sleep(1)
    assert seen.values == {"one": b"1"}


async def test_a_follower_that_was_not_started_can_be_closed(store: MemoryMetadataStore) -> None:
    await Seen().follow(store).aclose()


async def test_a_start_that_fails_follows_nothing_and_may_be_repeated(
    counting: CountingStore, other_store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await other_store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(counting)
    faults.meets, faults.refusals = reads_of(counting), 1
    with pytest.raises(StoreUnavailableError):
        await followed.start()
    assert counting.watches == 0
    faults.refusals = 0
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
    for value in (b"2", b"3", b"4"):
        faults.meets, faults.refusals = reads_of(store), FAILURES
        await change(other_store, ONE, value)
        wanted = {"one": value}
        times.append(await taken_s(until(lambda wanted=wanted: seen.values == wanted)))  # type: ignore[misc]
    assert PAUSES_S[0] < min(times), "it pauses"
    assert max(times) < PAUSES_S[1], "the pauses begin small again after a success"
    await followed.aclose()


async def test_names_whose_read_fails_are_read_again(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(store)
    await followed.start()
    faults.meets, faults.refusals = reads_of(store), FAILURES
    await other_store.create(TWO, b"1")
    await asyncio.sleep(60)
    assert seen.values == {"one": b"1", "two": b"1"}
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
    counting.gate = asyncio.Event()
    await change(store, ONE, b"2")
    await until(lambda: counting.running == 1)
    await store.delete(ONE, Version(1))
    counting.gate.set()
    await until(lambda: seen.gone == ["one"])
    assert seen.values == {}
    assert counting.watches == 1
    await followed.aclose()


async def test_a_node_that_is_deleted_before_its_read_is_due_is_not_read(
    store: MemoryMetadataStore, counting: CountingStore
) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(counting, JITTER_S)
    await followed.start()
    await change(store, ONE, b"2")
    await store.delete(ONE, Version(1))
    await asyncio.sleep(2 * JITTER_S)
    assert seen.gone == ["one"]
    assert counting.reads == [ONE]
    await followed.aclose()


async def test_a_node_that_returns_is_reported_again(
    store: MemoryMetadataStore, counting: CountingStore
) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(counting)
    await followed.start()
    await store.delete(ONE, Version(0))
    await until(lambda: seen.gone == ["one"])
    await store.create(ONE, b"2")
    await until(lambda: seen.values == {"one": b"2"})
    await store.create(TWO, b"1")
    await until(lambda: len(seen.values) == 2)
    assert seen.gone == ["one"]
    assert not any(counting.lists[1:]), "only a refresh costs a sync"
    await followed.aclose()


async def test_a_change_is_read_at_once_without_a_jitter(
    store: MemoryMetadataStore, counting: CountingStore
) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = ChildValues(
        counting, PARENT, random.Random(3), on_value=seen.value, on_gone=seen.absence
    )
    await followed.start()
    for number in range(5):
        await change(store, ONE, b"%d" % number)
        await asyncio.sleep(0.1)
        assert seen.values == {"one": b"%d" % number}
    assert counting.lists == [True], "names are read when they change"
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
    await store.create(ONE, b"1")
    began_s = asyncio.get_running_loop().time()
    await until(lambda: "one" in seen.values)
    assert 0.1 < seen.times["one"] - began_s <= JITTER_S + 1
    await followed.aclose()


async def test_a_short_jitter_is_kept(store: MemoryMetadataStore) -> None:
    await store.create(ONE, b"1")
    seen = Seen()
    followed = seen.follow(store, 0.2)
    await followed.start()
    for number in range(5):
        await change(store, ONE, b"%d" % number)
        await asyncio.sleep(0.3)
        assert seen.values == {"one": b"%d" % number}
    await followed.aclose()
