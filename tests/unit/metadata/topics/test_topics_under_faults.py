"""Topics and partitions lose no change and repeat none while random answers are lost and several
writers work at once.
"""

import asyncio
import random

import pytest

from metadata.errors import StaleLeaderEpochError, StoreUnavailableError, VersionConflictError
from metadata.ids import LedgerId
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.topics.partition import PartitionSegment
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.topic import TopicId, TopicRecord, new_topic
from metadata.topics.topic_store import TopicChange, TopicStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.unit.metadata.conftest import NOW_MS

NAME = "orders"
TOPIC_ID = TopicId(b"t" * 16)
KEY = PartitionKey(TOPIC_ID, 0)
WRITERS = 4
CHANGES = 12
FAULTS = ["", "", "", "lost", "dropped", "late", "refused"]


def led_by(partition: int, broker_id: int) -> TopicChange:
    def change(record: TopicRecord) -> TopicRecord | None:
        is_led = record.partitions[partition].leader == broker_id
        return None if is_led else record.with_leaders({partition: broker_id})

    return change


async def lead(topics: TopicStore, partition: int) -> None:
    """Give a partition one leader after another; repeat each change until it is certain."""
    for broker_id in range(1, CHANGES + 1):
        while True:
            try:
                await topics.change(NAME, led_by(partition, broker_id))
                break
            except StoreUnavailableError:
                await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(8))
async def test_every_change_of_a_topic_applies_once(
    server: MemoryMetadataServer, faults: ScriptedFaults, seed: int
) -> None:
    rng = random.Random(seed)
    stores = [MemoryMetadataStore(server, operation_timeout_s=0.05) for _ in range(WRITERS)]
    writers = [TopicStore(store, random.Random(seed * 10 + i)) for i, store in enumerate(stores)]
    await writers[0].create(new_topic(NAME, TOPIC_ID, NOW_MS, [0] * WRITERS, {}))
    faults.acts = [rng.choice(FAULTS) for _ in range(150)]
    await asyncio.gather(*[lead(writers[i], i) for i in range(WRITERS)])
    await asyncio.sleep(1)
    record, _ = await writers[0].get(NAME, fresh=True)
    leaders = [(partition.leader, partition.leader_epoch) for partition in record.partitions]
    assert leaders == [(CHANGES, CHANGES)] * WRITERS
    for store in stores:
        await store.aclose()


class Leader:
    """Claims the partition repeatedly, and lists ledgers while it leads it."""

    def __init__(self, partitions: PartitionStore, number: int, rng: random.Random) -> None:
        self.partitions = partitions
        self.number = number
        self.rng = rng
        self.listed: list[int] = []
        self.tried: list[int] = []

    async def run(self) -> None:
        for term in range(CHANGES):
            try:
                await self._lead(term)
            except (VersionConflictError, StaleLeaderEpochError, StoreUnavailableError):
                await asyncio.sleep(self.rng.random())

    async def _lead(self, term: int) -> None:
        record, version = await self.partitions.get_or_create(KEY)
        claim = record.claimed(record.leader_epoch + 1)
        record, version = await self.partitions.compare_and_set(KEY, claim, version)
        for count in range(6):
            ledger_id = self.number * 1_000 + term * 10 + count
            last = record.last_segment
            base = 0 if last is None else last.base_offset + 1
            segment = PartitionSegment(LedgerId(ledger_id), base, record.leader_epoch, NOW_MS)
            self.tried.append(ledger_id)
            record, version = await self.partitions.compare_and_set(
                KEY, record.with_segment(segment), version
            )
            self.listed.append(ledger_id)
            await asyncio.sleep(self.rng.random() / 5)


@pytest.mark.parametrize("seed", range(8))
async def test_listed_ledgers_stay_listed_once(
    server: MemoryMetadataServer, faults: ScriptedFaults, seed: int
) -> None:
    rng = random.Random(seed)
    stores = [MemoryMetadataStore(server, operation_timeout_s=0.05) for _ in range(WRITERS)]
    leaders = [
        Leader(PartitionStore(store, random.Random(seed * 10 + i)), i, rng)
        for i, store in enumerate(stores)
    ]
    faults.acts = [rng.choice(FAULTS) for _ in range(300)]
    await asyncio.gather(*[leader.run() for leader in leaders])
    await asyncio.sleep(1)
    record, _ = await leaders[0].partitions.get(KEY)
    found = [segment.ledger_id for segment in record.segments]
    epochs = [segment.epoch for segment in record.segments]
    assert sorted(epochs) == epochs
    assert len(dict.fromkeys(found)) == len(found)
    tried = dict.fromkeys(each for leader in leaders for each in leader.tried)
    assert all(ledger_id in tried for ledger_id in found)
    for leader in leaders:
        assert [ledger_id for ledger_id in found if ledger_id in leader.listed] == leader.listed
    assert len(found) > CHANGES
    for store in stores:
        await store.aclose()
