"""Batching of compare-and-sets: one is sent at once, many are sent together, each has its own
outcome.
"""

import asyncio
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.errors import OutcomeUnknownError, StoreRefusedError, VersionConflictError
from metadata.ids import Version
from metadata.store.batching import BATCHES_IN_FLIGHT_MAX, BatchingStore, plan_batch
from metadata.store.interface import (
    MULTI_BYTES_MAX,
    MULTI_OPERATIONS_MAX,
    CompareAndSet,
    Operation,
    multi_size,
)
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from quire.server.overriding import override
from tests.support.metadata.scripted_faults import ScriptedFaults

operations = st.lists(
    st.builds(
        CompareAndSet,
        st.integers(0, 400).map(lambda n: f"/{n}"),
        st.sampled_from([0, 10, 5_000, 100_000, 600_000]).map(bytes),
        st.just(Version(0)),
    ),
    min_size=1,
    max_size=150,
)


@given(operations)
def test_a_batch_is_the_longest_that_fits(waiting: list[CompareAndSet]) -> None:
    def fits(count: int) -> bool:
        batch = waiting[:count]
        return (
            count <= MULTI_OPERATIONS_MAX
            and multi_size(batch) <= MULTI_BYTES_MAX
            and len({operation.path for operation in batch}) == count
        )

    count = plan_batch(waiting)
    assert count == 1 or fits(count)
    assert count == len(waiting) or not fits(count + 1)


def test_no_requests_form_no_batch() -> None:
    assert plan_batch([]) == 0


async def prepared(store: MemoryMetadataStore, count: int) -> list[str]:
    paths = [f"/n{i:03}" for i in range(count)]
    for path in paths:
        await store.create(path, b"")
    return paths


async def test_a_single_request_is_sent_at_once(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    (path,) = await prepared(store, 1)
    faults.writes.clear()
    assert await BatchingStore(store).compare_and_set(path, b"1", Version(0)) == 1
    assert faults.writes == ["compare_and_set"]


async def test_a_burst_is_sent_together(store: MemoryMetadataStore, faults: ScriptedFaults) -> None:
    paths = await prepared(store, 250)
    faults.writes.clear()
    batching = BatchingStore(store)
    versions = await asyncio.gather(
        *[batching.compare_and_set(path, b"1", Version(0)) for path in paths]
    )
    assert versions == [1] * 250
    alone = BATCHES_IN_FLIGHT_MAX
    assert faults.writes == ["compare_and_set"] * alone + ["multi"] * 3


async def test_a_failed_batch_is_repeated_one_by_one(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    paths = await prepared(store, 20)
    await store.compare_and_set(paths[10], b"other", Version(0))
    await store.delete(paths[12], Version(0))
    batching = BatchingStore(store)
    results = await asyncio.gather(
        *[batching.compare_and_set(path, b"1", Version(0)) for path in paths],
        return_exceptions=True,
    )
    assert [i for i, result in enumerate(results) if result != 1] == [10, 12]
    assert isinstance(results[10], VersionConflictError)
    assert "multi" in faults.writes


class RaisingStore(MemoryMetadataStore):
    """Store that raises for writes of one path, alone or in a batch."""

    error: Exception
    path = ""

    @override
    async def compare_and_set(self, path: str, value: bytes, expected: Version) -> Version:
        if path == self.path:
            raise self.error
        return await super().compare_and_set(path, value, expected)

    @override
    async def multi(self, operations: Sequence[Operation]) -> list[Version]:
        if any(operation.path == self.path for operation in operations):
            raise self.error
        return await super().multi(operations)


async def test_a_refused_write_does_not_fail_the_others_of_its_batch(
    store: MemoryMetadataStore, server: MemoryMetadataServer
) -> None:
    paths = await prepared(store, 20)
    raising = RaisingStore(server)
    raising.error, raising.path = StoreRefusedError(paths[10], "zk", "NoAuthError"), paths[10]
    batching = BatchingStore(raising)
    results = await asyncio.gather(
        *[batching.compare_and_set(path, b"1", Version(0)) for path in paths],
        return_exceptions=True,
    )
    assert [i for i, result in enumerate(results) if result != 1] == [10]
    assert isinstance(results[10], StoreRefusedError)
    await raising.aclose()


@pytest.mark.parametrize("count", [1, 5, 20])
async def test_an_unexpected_error_reaches_every_caller(
    store: MemoryMetadataStore, server: MemoryMetadataServer, count: int
) -> None:
    """A cancelled reply would look like a cancelled caller, which reports nothing."""
    paths = await prepared(store, count)
    raising = RaisingStore(server)
    raising.error, raising.path = LookupError("a defect"), paths[-1]
    batching = BatchingStore(raising)
    results = await asyncio.gather(
        *[batching.compare_and_set(path, b"1", Version(0)) for path in paths],
        return_exceptions=True,
    )
    assert isinstance(results[-1], LookupError)
    assert all(result == 1 or isinstance(result, LookupError) for result in results)
    await raising.aclose()


async def test_an_unknown_outcome_applies_to_each_request_of_the_batch(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    paths = await prepared(store, 10)
    faults.acts = [""] * BATCHES_IN_FLIGHT_MAX + ["lost"]
    batching = BatchingStore(store)
    results = await asyncio.gather(
        *[batching.compare_and_set(path, b"1", Version(0)) for path in paths],
        return_exceptions=True,
    )
    unknown = [result for result in results if isinstance(result, OutcomeUnknownError)]
    assert len(unknown) == 10 - BATCHES_IN_FLIGHT_MAX


async def test_a_cancelled_caller_does_not_delay_others(store: MemoryMetadataStore) -> None:
    paths = await prepared(store, 10)
    batching = BatchingStore(store)
    calls = [
        asyncio.create_task(batching.compare_and_set(path, b"1", Version(0))) for path in paths
    ]
    await asyncio.sleep(0)
    for index in (0, 7):
        calls[index].cancel()
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert [i for i, result in enumerate(results) if result != 1] == [0, 7]


async def test_two_writes_of_one_path_keep_their_order(store: MemoryMetadataStore) -> None:
    paths = await prepared(store, 6)
    batching = BatchingStore(store)
    calls = [batching.compare_and_set(path, b"1", Version(0)) for path in paths]
    calls.append(batching.compare_and_set(paths[5], b"2", Version(1)))
    assert (await asyncio.gather(*calls))[-1] == 2


@pytest.mark.parametrize("size", [600_000])
async def test_a_value_too_large_for_a_batch_goes_alone(
    store: MemoryMetadataStore, size: int
) -> None:
    paths = await prepared(store, 8)
    batching = BatchingStore(store)
    versions = await asyncio.gather(
        *[batching.compare_and_set(path, bytes(size), Version(0)) for path in paths]
    )
    assert versions == [1] * 8
