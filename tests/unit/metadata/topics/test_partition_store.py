"""A partition's list of ledgers changes completely or not at all, whatever answer is lost."""

import asyncio
import random
from dataclasses import replace

import pytest

from metadata.errors import (
    NodeNotFoundError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.ids import LedgerId, Version
from metadata.paths import PARTITIONS, partition_path
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.topics.partition import (
    SEGMENTS_IN_RECORD_MAX,
    SEGMENTS_PER_CHUNK,
    PartitionRecord,
    PartitionSegment,
)
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.topic import NO_TOKEN, TopicId
from tests.support.metadata.scripted_faults import ScriptedFaults, is_read, reads_of
from tests.unit.metadata.conftest import RETRIES

KEY = PartitionKey(TopicId(b"t" * 16), 7)
ACTS = ["", "lost", "dropped", "late"]


@pytest.fixture
def partitions(store: MemoryMetadataStore, rng: random.Random) -> PartitionStore:
    return PartitionStore(store, rng)


@pytest.fixture
def others(other_store: MemoryMetadataStore, rng: random.Random) -> PartitionStore:
    return PartitionStore(other_store, rng)


def segments(first: int, end: int) -> tuple[PartitionSegment, ...]:
    return tuple(
        PartitionSegment(LedgerId(i), 10 * i, 1, 0, 10 * i + 10, 9, 9) for i in range(first, end)
    )


def ids(found: tuple[PartitionSegment, ...]) -> list[int]:
    return [segment.ledger_id for segment in found]


async def filled(partitions: PartitionStore, count: int) -> tuple[PartitionRecord, Version]:
    """Store a partition of `count` segments."""
    record, version = await partitions.get_or_create(KEY)
    in_record = min(count, SEGMENTS_IN_RECORD_MAX)
    record = replace(record, leader_epoch=1, segments=segments(0, in_record))
    record, version = await partitions.compare_and_set(KEY, record, version)
    for segment in segments(in_record, count):
        record = record.with_segment(segment)
        record, version = await partitions.compare_and_set(KEY, record, version)
    return record, version


async def test_a_partition_is_created_on_demand(partitions: PartitionStore) -> None:
    with pytest.raises(NodeNotFoundError):
        await partitions.get(KEY)
    record, version = await partitions.get_or_create(KEY)
    assert replace(record, token=NO_TOKEN) == PartitionRecord()
    assert await partitions.get_or_create(KEY) == (record, version)
    assert await partitions.get(KEY) == (record, version)


@pytest.mark.parametrize("act", ACTS)
async def test_concurrent_creators_find_the_same_partition(
    partitions: PartitionStore, others: PartitionStore, faults: ScriptedFaults, act: str
) -> None:
    await partitions.get_or_create(PartitionKey(KEY.topic_id, 1))
    faults.acts = [act]
    both = (partitions, others)
    found = await asyncio.gather(*[both[i % 2].get_or_create(KEY) for i in range(6)])
    assert found == [found[0]] * 6


@pytest.mark.parametrize("act", ACTS)
async def test_a_change_of_unknown_outcome_is_decided(
    partitions: PartitionStore, faults: ScriptedFaults, act: str
) -> None:
    record, version = await partitions.get_or_create(KEY)
    faults.acts = [act]
    stored = await partitions.compare_and_set(KEY, record.claimed(3), version)
    assert stored[0].leader_epoch == 3
    await asyncio.sleep(faults.late_s * 2)
    assert await partitions.get(KEY) == stored


@pytest.mark.parametrize("act", ACTS)
async def test_an_old_leader_changes_nothing(
    partitions: PartitionStore, others: PartitionStore, faults: ScriptedFaults, act: str
) -> None:
    record, version = await partitions.get_or_create(KEY)
    new = await others.compare_and_set(KEY, record.claimed(4), version)
    faults.acts = [act]
    with pytest.raises(VersionConflictError):
        await partitions.compare_and_set(KEY, record.claimed(3), version)
    await asyncio.sleep(faults.late_s * 2)
    assert await partitions.get(KEY) == new


async def test_an_overtaken_change_is_a_conflict(
    partitions: PartitionStore, others: PartitionStore, faults: ScriptedFaults
) -> None:
    record, version = await partitions.get_or_create(KEY)
    faults.acts = ["late"]
    changing = asyncio.create_task(partitions.compare_and_set(KEY, record.claimed(3), version))
    await asyncio.sleep(faults.late_s / 2)
    new = await others.compare_and_set(KEY, record.claimed(4), version)
    with pytest.raises(VersionConflictError):
        await changing
    assert await partitions.get(KEY) == new


async def test_a_conflict_needs_no_read_to_be_certain(
    partitions: PartitionStore,
    others: PartitionStore,
    store: MemoryMetadataStore,
    faults: ScriptedFaults,
) -> None:
    """The metadata service answers no read after the conflict."""
    record, version = await partitions.get_or_create(KEY)
    await others.compare_and_set(KEY, record.claimed(4), version)
    faults.meets, faults.refusals = reads_of(store), RETRIES
    with pytest.raises(VersionConflictError):
        await partitions.compare_and_set(KEY, record.claimed(3), version)
    assert faults.refusals == RETRIES


async def test_a_change_that_took_effect_late_is_ours(
    partitions: PartitionStore, faults: ScriptedFaults
) -> None:
    """It takes effect after its unknown outcome was read back, and before it is repeated."""
    record, version = await partitions.get_or_create(KEY)
    faults.late_s = 0.06
    faults.acts = ["late"]
    stored = await partitions.compare_and_set(KEY, record.claimed(3), version)
    assert stored[1] == version + 1
    assert await partitions.get(KEY) == stored


async def test_a_refusing_service_raises(
    partitions: PartitionStore, faults: ScriptedFaults
) -> None:
    record, version = await partitions.get_or_create(KEY)
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await partitions.compare_and_set(KEY, record.claimed(3), version)
    assert await partitions.get(KEY) == (record, version)
    faults.acts = ["dropped", "refused", "refused"]
    stored, _ = await partitions.compare_and_set(KEY, record.claimed(3), version)
    assert stored.leader_epoch == 3


@pytest.mark.parametrize("act", ACTS)
async def test_old_segments_move_to_chunks_in_one_step(
    partitions: PartitionStore, faults: ScriptedFaults, act: str
) -> None:
    record, version = await filled(partitions, SEGMENTS_IN_RECORD_MAX)
    faults.acts = [act]
    more = record.with_segment(*segments(SEGMENTS_IN_RECORD_MAX, SEGMENTS_IN_RECORD_MAX + 1))
    stored, version = await partitions.compare_and_set(KEY, more, version)
    await asyncio.sleep(faults.late_s * 2)
    assert await partitions.get(KEY) == (stored, version)
    assert ids(await partitions.chunk(KEY, 0)) == list(range(SEGMENTS_PER_CHUNK))
    assert len(stored.segments) == SEGMENTS_IN_RECORD_MAX + 1 - SEGMENTS_PER_CHUNK
    assert ids(await partitions.segments(KEY, stored)) == list(range(SEGMENTS_IN_RECORD_MAX + 1))


async def test_old_segments_are_dropped_in_order(partitions: PartitionStore) -> None:
    count = SEGMENTS_IN_RECORD_MAX + SEGMENTS_PER_CHUNK + 1
    record, version = await filled(partitions, count)
    assert (record.first_chunk, record.next_chunk) == (0, 2)
    dropped_ids: list[int] = []
    for log_start in (25, 25, 5_000, 7_003, 10_019):
        record, dropped = await partitions.without_segments_below(KEY, record, log_start)
        record, version = await partitions.compare_and_set(KEY, record, version)
        dropped_ids += ids(dropped)
        kept = ids(await partitions.segments(KEY, record))
        assert dropped_ids == list(range(log_start // 10))
        assert kept == list(range(log_start // 10, count))
        await partitions.drop_chunks(KEY, record)
        assert ids(await partitions.segments(KEY, record)) == kept
    assert not record.has_chunks
    for number in range(2):
        with pytest.raises(NodeNotFoundError):
            await partitions.chunk(KEY, number)


@pytest.mark.parametrize("act", ACTS)
async def test_deleting_leaves_no_nodes(
    partitions: PartitionStore, store: MemoryMetadataStore, faults: ScriptedFaults, act: str
) -> None:
    sibling = PartitionKey(KEY.topic_id, 3)
    await partitions.get_or_create(sibling)
    record, version = await filled(partitions, SEGMENTS_IN_RECORD_MAX + 1)
    faults.acts = ["", act]
    await partitions.delete(KEY)
    with pytest.raises(NodeNotFoundError):
        await partitions.compare_and_set(KEY, record, version)
    await partitions.delete(KEY)
    assert (await partitions.get(sibling))[0].leader_epoch == -1
    assert await store.children(partition_path(sibling).rpartition("/")[0]) == ["3"]
    await partitions.delete(sibling)
    assert await store.children(PARTITIONS) == []


async def test_the_node_above_is_looked_for_without_waiting_for_the_leader(
    rng: random.Random,
) -> None:
    reads = ScriptedFaults(is_read)
    store = MemoryMetadataStore(MemoryMetadataServer(reads))
    await PartitionStore(store, rng).get_or_create(KEY)
    assert reads.fresh == [True, False], "only the read of the partition waits"
    await store.aclose()
