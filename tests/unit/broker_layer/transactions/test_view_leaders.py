"""Leaders of partitions in the view of the cluster."""

import pytest

from broker_layer.peer import PeerAddress
from broker_layer.transactions.ports import NoLeader
from broker_layer.transactions.values import TopicPartition
from broker_layer.transactions.view_leaders import ViewLeaders


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
    assert ViewLeaders(View(), "BROKERS").leader_of(TopicPartition(topic, number)) == leader
