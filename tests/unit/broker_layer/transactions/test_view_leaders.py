"""Leaders of partitions in the view of the cluster."""

from random import Random

import pytest

from broker_layer.peer import PeerAddress
from broker_layer.transactions.leaders import NoLeader, ViewLeaders
from broker_layer.transactions.values import TopicPartition
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from metadata.topics.topic import TopicId, new_topic
from metadata.topics.topic_store import TopicStore


class View:
    """Topic `a` has a partition of broker 3 and one without a leader; `gone` is being deleted."""

    deleting = ("gone",)

    def leader_of(self, topic: str, partition: int) -> tuple[int, int] | None:
        return {("a", 0): (3, 7), ("a", 1): (-1, 8), ("a", 2): (4, 1)}.get((topic, partition))

    def address_of(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        return ("host", 9093) if (broker_id, listener) == (3, "BROKERS") else None


@pytest.mark.parametrize(
    ("topic", "number", "leader"),
    [
        ("a", 0, PeerAddress(3, "host", 9093)),
        ("a", 1, NoLeader.NOT_NOW),
        ("a", 2, NoLeader.NOT_NOW),
        ("a", 3, NoLeader.ABSENT),
        ("b", 0, NoLeader.ABSENT),
        ("gone", 0, NoLeader.DELETED),
    ],
)
def test_leader_or_reason_why_there_is_none(
    topic: str, number: int, leader: PeerAddress | NoLeader
) -> None:
    leaders = ViewLeaders(
        View(), "BROKERS", TopicStore(MemoryMetadataStore(MemoryMetadataServer()), Random(1))
    )
    assert leaders.leader_of(TopicPartition(topic, number)) == leader


async def test_partitions_are_counted_in_the_present_record() -> None:
    topics = TopicStore(MemoryMetadataStore(MemoryMetadataServer()), Random(1))
    leaders = ViewLeaders(View(), "BROKERS", topics)
    assert await leaders.stored_count("a") == 0
    await topics.create(new_topic("a", TopicId(bytes(16)), 1_000, [1, 1], {}))
    assert await leaders.stored_count("a") == 2
    await topics.change("a", lambda record: record.with_deletion())
    assert await leaders.stored_count("a") == 0
