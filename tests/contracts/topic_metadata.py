"""Contract of the metadata of topics, as one suite that runs on each metadata store.

Leaves creating stores, and ending their sessions, to the `StoreService` of the implementation.
"""

import asyncio
from functools import partial
from random import Random

import pytest

from metadata.brokers.broker_registry import (
    BrokerDirectory,
    BrokerRegistrar,
    BrokerRegistration,
    Listener,
)
from metadata.brokers.election import ControllerElection
from metadata.errors import NodeNotFoundError, TopicExistsError, TopicNotFoundError
from metadata.ids import BookieId, LedgerId
from metadata.paths import PRODUCER_IDS
from metadata.store.interface import MULTI_OPERATIONS_MAX
from metadata.store.number_blocks import NumberBlocks
from metadata.topics.in_sync_reports import InSyncReport, InSyncReporter, InSyncView
from metadata.topics.partition import SEGMENTS_IN_RECORD_MAX, PartitionSegment
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.replica_numbers import ReplicaNumbers
from metadata.topics.topic import PARTITIONS_MAX, TopicId, TopicRecord, new_topic
from metadata.topics.topic_store import TopicChange, TopicStore
from tests.contracts.store_service import StoreService, eventually

RNG_SEED = 7
KEY = PartitionKey(TopicId(b"t" * 16), 3)


def topic(name: str, number: int, *leaders: int) -> TopicRecord:
    return new_topic(name, TopicId(number.to_bytes(16, "big")), 0, leaders or (1, 2), {})


def led_by(broker_id: int) -> TopicChange:
    """Return the change that makes a broker the leader of partition 0, if it is not."""

    def change(record: TopicRecord) -> TopicRecord | None:
        is_led = record.partitions[0].leader == broker_id
        return None if is_led else record.with_leaders({0: broker_id})

    return change


def _reports(view: InSyncView, expected: InSyncReport) -> bool:
    return view.find(KEY) == expected


class TopicMetadataContract:
    """Tests to inherit in a class with a `service` fixture."""

    async def test_name_belongs_to_one_topic_at_a_time(self, service: StoreService) -> None:
        both = [TopicStore(await service.connect(), Random(RNG_SEED + i)) for i in range(2)]
        first = await both[0].create(topic("orders", 1))
        with pytest.raises(TopicExistsError):
            await both[1].create(topic("orders", 2))
        await both[1].change("orders", lambda record: record.with_leaders({0: 5}))
        await both[0].change("orders", TopicRecord.with_deletion)
        await both[0].finish_deletion("orders", first.topic_id)
        with pytest.raises(TopicNotFoundError):
            await both[1].get("orders", fresh=True)
        again = await both[1].create(topic("orders", 2))
        assert [partition.leader_epoch for partition in again.partitions] == [2, 2]
        assert await both[0].get("orders", fresh=True) == (again, 4)

    async def test_the_largest_topic_is_stored(self, service: StoreService) -> None:
        topics = TopicStore(await service.connect(), Random(RNG_SEED))
        made = await topics.create(topic("large", 1, *[999_999] * PARTITIONS_MAX))
        changed = await topics.change("large", lambda record: record.with_leaders({0: 5}))
        assert changed.partitions == made.with_leaders({0: 5}).partitions
        assert await topics.get("large", fresh=True) == (changed, 1)

    async def test_many_topics_change_while_others_change_them(self, service: StoreService) -> None:
        both = [TopicStore(await service.connect(), Random(RNG_SEED + i)) for i in range(2)]
        names = [f"t{i}" for i in range(MULTI_OPERATIONS_MAX + 20)]
        await asyncio.gather(*[both[0].create(topic(name, 1)) for name in names])
        await asyncio.gather(
            both[0].change_many({name: led_by(5) for name in names}),
            both[1].change_many(dict.fromkeys(names[::3], lambda each: each.with_leaders({1: 6}))),
        )
        for index, name in enumerate(names):
            record, _ = await both[0].get(name, fresh=True)
            second = (2, 0) if index % 3 else (6, 1)
            leaders = [
                (partition.leader, partition.leader_epoch) for partition in record.partitions
            ]
            assert leaders == [(5, 1), second]

    async def test_old_segments_of_a_partition_are_in_chunks(self, service: StoreService) -> None:
        partitions = PartitionStore(await service.connect(), Random(RNG_SEED))
        record, version = await partitions.get_or_create(KEY)
        for number in range(SEGMENTS_IN_RECORD_MAX + 1):
            record = record.with_segment(
                PartitionSegment(LedgerId(number), 10 * number, 1, 0, 10 * number + 10, 9, 9)
            )
        record, version = await partitions.compare_and_set(KEY, record, version)
        assert record.has_chunks
        found = await partitions.segments(KEY, (await partitions.get(KEY))[0])
        assert [segment.ledger_id for segment in found] == list(range(SEGMENTS_IN_RECORD_MAX + 1))
        record, dropped = await partitions.without_segments_below(KEY, record, 9_000)
        assert len(dropped) == 900
        record, version = await partitions.compare_and_set(KEY, record, version)
        await partitions.drop_chunks(KEY, record)
        with pytest.raises(NodeNotFoundError):
            await partitions.chunk(KEY, 0)
        await partitions.delete(KEY)
        with pytest.raises(NodeNotFoundError):
            await partitions.get(KEY)

    async def test_brokers_are_seen_and_one_is_the_controller(self, service: StoreService) -> None:
        first, second = await service.connect(), await service.connect()
        rng = Random(RNG_SEED)
        listener = Listener("PLAINTEXT", "host", 9092)
        registrar = BrokerRegistrar(first, BrokerRegistration(1, (listener,)), rng)
        await registrar.start()
        directory = BrokerDirectory(second, rng)
        await directory.start()
        assert list(directory.brokers) == [1]
        elections = [ControllerElection(first, 1, rng), ControllerElection(second, 2, rng)]
        await elections[0].start()
        await eventually(lambda: elections[0].is_controller)
        await elections[1].start()
        await eventually(lambda: elections[1].controller_id == 1)
        await service.expire(first)
        await eventually(
            lambda: any(controller_election.is_controller for controller_election in elections)
        )
        await eventually(lambda: list(directory.brokers) == [1])
        for election in elections:
            await election.aclose()
        await registrar.aclose()
        await eventually(lambda: not directory.brokers)
        await directory.aclose()

    async def test_numbers_are_assigned_once(self, service: StoreService) -> None:
        stores = [await service.connect() for _ in range(2)]
        rng = Random(RNG_SEED)
        blocks = [NumberBlocks(store, rng, PRODUCER_IDS, 3) for store in stores]
        numbers = await asyncio.gather(*[blocks[i % 2].next() for i in range(20)])
        assert len(dict.fromkeys(numbers)) == 20
        bookies = [BookieId(f"b{i}") for i in range(4)]
        views = [ReplicaNumbers(store, rng) for store in stores]
        found = await asyncio.gather(*[view.numbers_of(bookies) for view in views])
        assert found[0] == found[1]

    async def test_reports_of_replicas_reach_all(self, service: StoreService) -> None:
        stores = [await service.connect() for _ in range(2)]
        view = InSyncView(stores[1], Random(RNG_SEED))
        await view.start()
        reporter = InSyncReporter(stores[0], 1, Random(RNG_SEED), interval_s=0.01)
        reporter.start()
        for count in range(3):
            expected = InSyncReport(4, (7, 8), (7, 8)[:count])
            reporter.report(KEY, expected)
            await eventually(partial(_reports, view, expected))
        await reporter.aclose()
        await view.aclose()
