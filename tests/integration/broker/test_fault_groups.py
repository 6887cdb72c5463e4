"""Tests of a group of five members during deaths of coordinators and returns of static members."""

import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from quire.local_cluster import LocalCluster
from tests.integration.broker.fault_client import (
    CALL_S,
    bootstrap,
    create_topic,
    on_thread,
    produce,
)
from tests.until import WAIT_S

TOPIC = "shared"
GROUP = "five"
MEMBERS = 5
PARTITIONS = 10
ROUND = 20
pytestmark = pytest.mark.campaign


@pytest.fixture
async def cluster() -> AsyncIterator[LocalCluster]:
    async with LocalCluster(bookies=3, broker=3) as running:
        yield running


class Members:
    """Five static members of a group, polled in turn; they commit at once what they read."""

    def __init__(self, servers: str) -> None:
        self.rebalances = 0
        self.read: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        self.committed: dict[int, int] = {}
        self._servers = servers
        self._consumers = [self._join(number) for number in range(MEMBERS)]

    def assignments(self) -> list[list[int]]:
        """Return the partitions of each member."""
        return [sorted(p.partition for p in consumer.assignment()) for consumer in self._consumers]

    def restart(self, number: int) -> None:
        """End a member without a request to leave the group, and start it again."""
        self._consumers[number].close()
        self._consumers[number] = self._join(number)

    def poll_until(self, is_right: Callable[[], bool]) -> None:
        """Poll all members until a condition is true. Raises AssertionError after a timeout."""
        deadline = time.monotonic() + WAIT_S
        while not is_right():
            assert time.monotonic() < deadline, (self.assignments(), self.committed)
            for consumer in self._consumers:
                self._poll(consumer)

    def is_shared(self) -> bool:
        """Whether each partition has an owner, and each member a partition."""
        shares = self.assignments()
        return all(shares) and sorted(p for share in shares for p in share) == list(
            range(PARTITIONS)
        )

    def has_committed(self, offset: int) -> bool:
        """Whether the group has committed these offsets in every partition."""
        return all(self.committed.get(number, 0) >= offset for number in range(PARTITIONS))

    def close(self) -> None:
        """Close all members."""
        for consumer in self._consumers:
            consumer.close()

    def _join(self, number: int) -> Consumer:
        consumer = Consumer(
            {
                "bootstrap.servers": self._servers,
                "group.id": GROUP,
                "group.instance.id": f"member-{number}",
                "session.timeout.ms": 45_000,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 0,
            }
        )
        consumer.subscribe([TOPIC], on_assign=self._on_assign)
        return consumer

    def _on_assign(self, _consumer: Consumer, _given: list[TopicPartition]) -> None:
        self.rebalances += 1

    def _poll(self, consumer: Consumer) -> None:
        messages = [m for m in consumer.consume(100, 0.02) if m.error() is None]
        if not messages:
            return
        for message in messages:
            self.read[message.partition() or 0].append(message.offset() or 0)
        places = {m.partition() or 0: (m.offset() or 0) + 1 for m in messages}
        offsets = [TopicPartition(TOPIC, partition, place) for partition, place in places.items()]
        try:
            answers = consumer.commit(offsets=offsets, asynchronous=False) or []
        except KafkaException:
            return  # not committed: it is read again, or committed with the next records
        for answer in answers:
            if answer.error is None:
                self.committed[answer.partition] = answer.offset


@contextmanager
def members_of(servers: str) -> Iterator[Members]:
    members = Members(servers)
    try:
        yield members
    finally:
        members.close()


def produce_everywhere(servers: str) -> None:
    for partition in range(PARTITIONS):
        produce(servers, TOPIC, [b"value"] * ROUND, partition)


def offsets_of(servers: str) -> dict[int, int]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": GROUP, "log_level": 0})
    try:
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        return {
            partition.partition: partition.offset
            for partition in consumer.committed(places, timeout=CALL_S)
        }
    finally:
        consumer.close()


def coordinator_of(servers: str) -> int:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    described = admin.describe_consumer_groups([GROUP])[GROUP].result(CALL_S)
    return int(described.coordinator.id)


async def test_no_record_is_lost_and_no_partition_moves_when_coordinators_die(
    cluster: LocalCluster,
) -> None:
    servers = bootstrap(cluster)
    await on_thread(create_topic, servers, TOPIC, PARTITIONS, 3)
    await on_thread(produce_everywhere, servers)
    with members_of(servers) as members:
        await on_thread(members.poll_until, lambda: members.has_committed(ROUND))
        await on_thread(members.poll_until, members.is_shared)
        before, rebalances = members.assignments(), members.rebalances
        done = ROUND
        for _ in range(2):
            committed = dict(members.committed)
            coordinator = await on_thread(coordinator_of, servers)
            broker = next(
                local_broker for local_broker in cluster.brokers if local_broker.id == coordinator
            )
            broker.kill()
            found = await on_thread(offsets_of, servers)
            assert {p: max(found[p], offset) for p, offset in committed.items()} == found
            await on_thread(produce_everywhere, servers)
            done += ROUND
            await on_thread(members.poll_until, lambda end=done: members.has_committed(end))
            await broker.restart()
        assert await on_thread(offsets_of, servers) == dict.fromkeys(range(PARTITIONS), done)
        for partition, offsets in members.read.items():
            assert sorted(set(offsets)) == list(range(done)), partition
        assert members.assignments() == before
        assert members.rebalances == rebalances


async def test_static_members_return_to_their_partitions(cluster: LocalCluster) -> None:
    servers = bootstrap(cluster)
    await on_thread(create_topic, servers, TOPIC, PARTITIONS, 3)
    await on_thread(produce_everywhere, servers)
    with members_of(servers) as members:
        await on_thread(members.poll_until, lambda: members.has_committed(ROUND))
        await on_thread(members.poll_until, members.is_shared)
        before, rebalances = members.assignments(), members.rebalances
        for number in range(MEMBERS):
            await on_thread(members.restart, number)
            await on_thread(members.poll_until, members.is_shared)
        # Each member got its own partitions again, and no other member got any.
        assert members.assignments() == before
        assert members.rebalances == rebalances + MEMBERS
        await on_thread(produce_everywhere, servers)
        await on_thread(members.poll_until, lambda: members.has_committed(2 * ROUND))
        assert all(offsets == list(range(2 * ROUND)) for offsets in members.read.values())
