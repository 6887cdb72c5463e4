"""Partitions are listed as they are now, created and changed in few writes, and retried after
pauses.
"""

import asyncio
import random
from dataclasses import replace

import pytest

from metadata.ids import LedgerId, Version
from metadata.paths import partition_path
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.partition import SEGMENTS_IN_RECORD_MAX, PartitionSegment
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.topic import TopicId
from tests.support.metadata.scripted_faults import ScriptedFaults, reads_of
from tests.unit.metadata.conftest import RETRIES, RETRIES_S_MIN, taken_s

FIRST, SECOND = TopicId(b"t" * 16), TopicId(b"u" * 16)
KEY = PartitionKey(FIRST, 7)
COUNT = 60


@pytest.fixture
def partitions(store: MemoryMetadataStore, rng: random.Random) -> PartitionStore:
    return PartitionStore(store, rng)


@pytest.fixture
def others(other_store: MemoryMetadataStore, rng: random.Random) -> PartitionStore:
    return PartitionStore(other_store, rng)


async def test_topics_and_partitions_are_listed(partitions: PartitionStore) -> None:
    assert await partitions.topic_ids() == []
    assert await partitions.partitions_of(FIRST) == []
    for key in (KEY, PartitionKey(FIRST, 10), PartitionKey(FIRST, 9), PartitionKey(SECOND, 0)):
        await partitions.get_or_create(key)
    assert sorted(await partitions.topic_ids()) == [FIRST, SECOND]
    assert await partitions.partitions_of(FIRST) == [7, 9, 10]
    assert await partitions.partitions_of(SECOND) == [0]


@pytest.mark.usefixtures("stale_reads")
async def test_reads_see_what_another_process_just_wrote(
    partitions: PartitionStore, others: PartitionStore
) -> None:
    await others.get_or_create(PartitionKey(FIRST, 0))
    await others.get_or_create(PartitionKey(FIRST, 1))
    assert await partitions.partitions_of(FIRST) == [0, 1]
    record, version = await others.get_or_create(KEY)
    assert await partitions.get(KEY) == (record, version)
    claimed, version = await others.compare_and_set(KEY, record.claimed(3), version)
    assert await partitions.get(KEY, fresh=False) == (record, version - 1)
    assert await partitions.get(KEY) == (claimed, version)


@pytest.mark.parametrize("is_new_prefix", [True, False])
async def test_a_topic_that_was_just_created_is_listed(
    partitions: PartitionStore,
    others: PartitionStore,
    faults: ScriptedFaults,
    monkeypatch: pytest.MonkeyPatch,
    *,
    is_new_prefix: bool,
) -> None:
    """A partition is created after its topic's node, and that after the node above it."""
    second = SECOND if is_new_prefix else TopicId(b"t" * 15 + b"u")
    changes_of_one = 3 if is_new_prefix else 2
    await others.get_or_create(PartitionKey(FIRST, 0))
    await others.get_or_create(PartitionKey(second, 0))
    monkeypatch.setattr(
        faults, "missed_changes", lambda call: 0 if call.is_fresh else changes_of_one
    )
    assert sorted(await partitions.topic_ids()) == [FIRST, second]


@pytest.mark.usefixtures("stale_reads")
async def test_a_chunk_that_was_just_written_can_be_dropped(
    other_store: MemoryMetadataStore, partitions: PartitionStore, others: PartitionStore
) -> None:
    segments = [
        PartitionSegment(LedgerId(i), 10 * i, 1, 0, 10 * i + 10, 9, 9)
        for i in range(SEGMENTS_IN_RECORD_MAX + 1)
    ]
    record, version = await others.get_or_create(KEY)
    full = replace(record, leader_epoch=1, segments=tuple(segments))
    record, version = await others.compare_and_set(KEY, full, version)
    assert len(await other_store.children(partition_path(KEY), fresh=True)) == 1
    rest, _ = await others.without_segments_below(KEY, record, segments[-1].base_offset)
    await partitions.drop_chunks(KEY, rest)
    assert await other_store.children(partition_path(KEY), fresh=True) == []


async def test_many_partitions_of_a_topic_make_its_node_once(
    partitions: PartitionStore, faults: ScriptedFaults
) -> None:
    keys = [PartitionKey(FIRST, number) for number in range(COUNT)]
    await asyncio.gather(*map(partitions.get_or_create, keys))
    parents = 3
    assert len(faults.writes) <= 2 * COUNT + parents
    assert await partitions.partitions_of(FIRST) == list(range(COUNT))


async def test_many_partitions_change_in_few_writes(
    partitions: PartitionStore, faults: ScriptedFaults
) -> None:
    keys = [PartitionKey(FIRST, number) for number in range(COUNT)]
    found = await asyncio.gather(*map(partitions.get_or_create, keys))
    faults.writes.clear()
    changed = await asyncio.gather(
        *[
            partitions.compare_and_set(key, record.claimed(2), version)
            for key, (record, version) in zip(keys, found, strict=True)
        ]
    )
    assert [version for _, version in changed] == [Version(1)] * COUNT
    assert len(faults.writes) < 10


async def test_a_creation_is_repeated_after_growing_pauses(
    partitions: PartitionStore, faults: ScriptedFaults
) -> None:
    await partitions.get_or_create(PartitionKey(FIRST, 0))
    faults.acts = ["dropped"] * RETRIES
    assert await taken_s(partitions.get_or_create(KEY)) > RETRIES_S_MIN


async def test_a_change_is_repeated_after_growing_pauses(
    store: MemoryMetadataStore, partitions: PartitionStore, faults: ScriptedFaults
) -> None:
    record, version = await partitions.get_or_create(KEY)
    faults.acts = ["dropped"] * RETRIES
    change = partitions.compare_and_set(KEY, record.claimed(3), version)
    assert await taken_s(change) > RETRIES_S_MIN
    record, version = await partitions.get(KEY)
    faults.acts = ["lost"]
    faults.meets, faults.refusals = reads_of(store), RETRIES
    change = partitions.compare_and_set(KEY, record.claimed(4), version)
    assert await taken_s(change) > RETRIES_S_MIN
    assert (await partitions.get(KEY))[0].leader_epoch == 4
