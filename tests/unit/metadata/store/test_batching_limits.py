"""Limits of batched writes, and callers that stop waiting while their write is sent."""

import asyncio
import contextlib
import gc
import weakref
from collections.abc import AsyncIterator, Sequence

import pytest

from metadata.errors import OutcomeUnknownError, StoreUnavailableError, ValueTooLargeError
from metadata.ids import Version
from metadata.store import batching as module
from metadata.store.batching import BATCHES_IN_FLIGHT_MAX, BatchingStore, plan_batch
from metadata.store.interface import (
    MULTI_BYTES_MAX,
    VALUE_BYTES_MAX,
    CompareAndSet,
    Operation,
    multi_size,
)
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.server.overriding import override
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.unit.metadata.store.test_batching import prepared
from tests.until import until


class HeldStore(MemoryMetadataStore):
    """Store that holds its writes until `release` is set, and counts those in progress.

    With another event in its place, writes that come later wait for that one.
    """

    def __init__(self, server: MemoryMetadataServer) -> None:
        super().__init__(server)
        self.release = asyncio.Event()
        self.held: list[list[str]] = []
        self.running = 0
        self.most_running = 0
        self.is_unknown = False
        """Whether a batch fails without an answer."""

    @contextlib.asynccontextmanager
    async def _hold(self, paths: list[str]) -> AsyncIterator[None]:
        release = self.release
        self.held.append(paths)
        self.running += 1
        self.most_running = max(self.most_running, self.running)
        try:
            await release.wait()
            yield
        finally:
            self.running -= 1

    @override
    async def compare_and_set(self, path: str, value: bytes, expected: Version) -> Version:
        async with self._hold([path]):
            return await super().compare_and_set(path, value, expected)

    @override
    async def multi(self, operations: Sequence[Operation]) -> list[Version]:
        async with self._hold([operation.path for operation in operations]):
            if self.is_unknown:
                raise OutcomeUnknownError(operations[0].path, "no answer")
            return await super().multi(operations)


def start(batching: BatchingStore, paths: list[str]) -> list["asyncio.Task[Version]"]:
    loop = asyncio.get_running_loop()
    return [loop.create_task(batching.compare_and_set(p, b"1", Version(0))) for p in paths]


def test_a_batch_may_have_exactly_the_maximum_size() -> None:
    half = MULTI_BYTES_MAX // 2
    first = CompareAndSet("/a", bytes(half - 2), Version(0))
    second = CompareAndSet("/b", bytes(MULTI_BYTES_MAX - half - 2), Version(0))
    assert multi_size([first, second]) == MULTI_BYTES_MAX
    assert plan_batch([first, second]) == 2
    larger = CompareAndSet("/b", second.value + b"x", Version(0))
    assert plan_batch([first, larger]) == 1


@pytest.mark.parametrize(("count", "last"), [(1, "compare_and_set"), (2, "multi")])
async def test_one_waiting_write_goes_alone_and_two_go_together(
    store: MemoryMetadataStore, faults: ScriptedFaults, count: int, last: str
) -> None:
    paths = await prepared(store, BATCHES_IN_FLIGHT_MAX + count)
    faults.writes.clear()
    assert await asyncio.gather(*start(BatchingStore(store), paths)) == [1] * len(paths)
    assert faults.writes == ["compare_and_set"] * BATCHES_IN_FLIGHT_MAX + [last]


async def test_no_more_than_the_maximum_number_of_sends_is_in_progress(
    store: MemoryMetadataStore, server: MemoryMetadataServer
) -> None:
    paths = await prepared(store, 1_000)
    held = HeldStore(server)
    batching = BatchingStore(held)
    calls = start(batching, paths)
    await until(lambda: held.running == BATCHES_IN_FLIGHT_MAX)
    held.release.set()
    assert await asyncio.gather(*calls) == [1] * len(paths)
    held.release.clear()
    again = [batching.compare_and_set(path, b"2", Version(1)) for path in paths]
    calls = [asyncio.get_running_loop().create_task(coroutine) for coroutine in again]
    await until(lambda: held.running == BATCHES_IN_FLIGHT_MAX)
    held.release.set()
    assert await asyncio.gather(*calls) == [2] * len(paths)
    assert held.most_running == BATCHES_IN_FLIGHT_MAX
    await held.aclose()


async def test_writes_beyond_the_limit_are_refused_and_the_others_are_sent(
    store: MemoryMetadataStore, server: MemoryMetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WAITING_WRITES_MAX", 2)
    paths = await prepared(store, BATCHES_IN_FLIGHT_MAX + 3)
    held = HeldStore(server)
    calls = start(BatchingStore(held), paths)
    await until(calls[-1].done)
    held.release.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert results[:-1] == [1] * (len(paths) - 1)
    assert isinstance(results[-1], StoreUnavailableError)
    await held.aclose()


async def test_a_value_that_is_too_large_is_refused_before_it_waits(
    store: MemoryMetadataStore, server: MemoryMetadataServer
) -> None:
    paths = await prepared(store, BATCHES_IN_FLIGHT_MAX + 1)
    held = HeldStore(server)
    batching = BatchingStore(held)
    calls = start(batching, paths)
    await until(lambda: held.running == BATCHES_IN_FLIGHT_MAX)
    with pytest.raises(ValueTooLargeError):
        await asyncio.wait_for(
            batching.compare_and_set(paths[0], bytes(VALUE_BYTES_MAX + 1), Version(0)), 1.0
        )
    held.release.set()
    await asyncio.gather(*calls)
    await held.aclose()


async def test_a_write_whose_caller_stops_waiting_is_not_sent(
    store: MemoryMetadataStore, server: MemoryMetadataServer
) -> None:
    paths = await prepared(store, BATCHES_IN_FLIGHT_MAX + 2)
    held = HeldStore(server)
    calls = start(BatchingStore(held), paths)
    await until(lambda: held.running == BATCHES_IN_FLIGHT_MAX)
    calls[-1].cancel()
    calls[-2].cancel()
    await asyncio.sleep(0.01)
    held.release.set()
    await asyncio.gather(*calls, return_exceptions=True)
    await asyncio.sleep(0.01)
    assert held.held == [[path] for path in paths[:BATCHES_IN_FLIGHT_MAX]]
    assert (await store.get(paths[-1])).version == 0
    await held.aclose()


@pytest.mark.parametrize("kind", ["", "conflict", "unknown"])
async def test_a_caller_that_stops_waiting_for_a_batch_spoils_no_other_write(
    store: MemoryMetadataStore, server: MemoryMetadataServer, kind: str
) -> None:
    """With a conflict the writes of the batch are repeated one by one."""
    reports: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, what: reports.append(what))
    paths = await prepared(store, BATCHES_IN_FLIGHT_MAX + 4)
    if kind == "conflict":
        await store.compare_and_set(paths[-1], b"other", Version(0))
        await store.compare_and_set(paths[-2], b"other", Version(0))
    held = HeldStore(server)
    held.is_unknown = kind == "unknown"
    calls = start(BatchingStore(held), paths)
    await until(lambda: held.running == BATCHES_IN_FLIGHT_MAX)
    released, held.release = held.release, asyncio.Event()
    released.set()
    await until(lambda: any(len(each) > 1 for each in held.held))
    calls[-1].cancel()
    calls[-4].cancel()
    await asyncio.sleep(0.01)
    held.release.set()
    results = await asyncio.gather(*calls, return_exceptions=True)
    await asyncio.sleep(0.01)
    done = [result == 1 for result in results]
    last = [False, kind != "unknown", not kind, False]
    assert done == [True] * BATCHES_IN_FLIGHT_MAX + last
    assert not reports
    await held.aclose()


async def test_a_batch_of_unknown_outcome_is_not_sent_again(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    paths = await prepared(store, BATCHES_IN_FLIGHT_MAX + 3)
    faults.writes.clear()
    faults.acts = [""] * BATCHES_IN_FLIGHT_MAX + ["dropped"]
    results = await asyncio.gather(*start(BatchingStore(store), paths), return_exceptions=True)
    await asyncio.sleep(0.1)
    assert [isinstance(result, OutcomeUnknownError) for result in results[-3:]] == [True] * 3
    assert faults.writes == ["compare_and_set"] * BATCHES_IN_FLIGHT_MAX + ["multi"]


async def test_a_caller_of_a_batch_whose_task_is_cancelled_does_not_wait_for_ever(
    store: MemoryMetadataStore, server: MemoryMetadataServer
) -> None:
    paths = await prepared(store, BATCHES_IN_FLIGHT_MAX + 3)
    held = HeldStore(server)
    calls = start(BatchingStore(held), paths)
    await until(lambda: held.running == BATCHES_IN_FLIGHT_MAX)
    before = asyncio.all_tasks()
    released, held.release = held.release, asyncio.Event()
    released.set()
    await until(lambda: any(len(each) > 1 for each in held.held))
    for task in asyncio.all_tasks() - before:
        task.cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(isinstance(result, asyncio.CancelledError) for result in results[-3:])
    await held.aclose()


async def test_tasks_of_sent_batches_are_not_kept(
    store: MemoryMetadataStore, server: MemoryMetadataServer
) -> None:
    paths = await prepared(store, 50)
    held = HeldStore(server)
    batching = BatchingStore(held)
    calls = start(batching, paths)
    await until(lambda: held.running == BATCHES_IN_FLIGHT_MAX)
    before = list(map(id, asyncio.all_tasks()))
    released, held.release = held.release, asyncio.Event()
    released.set()
    await until(lambda: any(len(each) > 1 for each in held.held))
    tasks = [weakref.ref(task) for task in asyncio.all_tasks() if id(task) not in before]
    held.release.set()
    await asyncio.gather(*calls)
    await asyncio.sleep(0.1)
    gc.collect()
    assert tasks
    assert not any(task() for task in tasks)
    assert await batching.compare_and_set(paths[0], b"2", Version(1)) == 2
    await held.aclose()
