"""Driver of one KIP-848 group, with members that behave as clients do."""

from dataclasses import dataclass, field

from broker_layer.groups.consumer_group import ConsumerGroup
from broker_layer.groups.values import (
    GroupsConfig,
    HeartbeatRequested,
    HeartbeatResult,
    Moment,
    Partition,
    Partitions,
)
from broker_layer.kafka.error_codes import ErrorCode
from tests.support.broker_layer.group_world import MemoryTopics

REBALANCE_MS = 60_000


@dataclass
class Client:
    """A member's own view of its state."""

    member_id: str
    instance_id: str | None = None
    topics: tuple[str, ...] | None = ("orders",)
    pattern: str | None = None
    assignor: str | None = None
    epoch: int = 0
    owned: Partitions = ()
    wanted: Partitions = ()
    is_lazy: bool = False
    """Whether it never revokes partitions."""
    answers: list[HeartbeatResult] = field(default_factory=list)


class ConsumerDriver:
    """One group, its topics and its clock."""

    def __init__(
        self, counts: dict[str, int] | None = None, config: GroupsConfig | None = None
    ) -> None:
        self.topics = MemoryTopics(counts or {"orders": 6, "other": 3})
        self.config = config or GroupsConfig()
        self.group = ConsumerGroup("g", self.config, self.topics)
        self.topics.on_topics_change(self._note_topics_changed)
        self.now_ms = 1_000

    def _note_topics_changed(self) -> None:
        self.group.note_topics_changed()  # tests may replace the group

    def state(self) -> str:
        return self.group.state

    def id_of(self, name: str) -> bytes:
        topic_id = self.topics.topic_id_of(name)
        assert topic_id is not None
        return topic_id

    def send(self, client: Client, *, epoch: int | None = None) -> HeartbeatResult:
        """Send one heartbeat with the client's state, and apply the answer."""
        sent = client.epoch if epoch is None else epoch
        is_joining = sent == 0
        event = HeartbeatRequested(
            client.member_id,
            sent,
            client.instance_id,
            None,
            "client",
            "/host",
            REBALANCE_MS if is_joining else None,
            client.topics if is_joining else None,
            client.pattern if is_joining else None,
            client.assignor if is_joining else None,
            () if is_joining else client.owned,
        )
        result = self.group.heartbeat(event, Moment(self.now_ms, self.now_ms))
        if result.error is ErrorCode.NONE:
            client.epoch = result.epoch
            if is_joining:
                client.owned = ()
            if result.assignment is not None:
                client.wanted = result.assignment
        client.answers.append(result)
        return result

    def obey(self, client: Client) -> None:
        """Revoke what the client must not own; if there is nothing to revoke, own what it may."""
        if client.is_lazy:
            return
        kept = tuple(each for each in client.owned if each in client.wanted)
        client.owned = kept if kept != client.owned else client.wanted

    def change(self, client: Client, topics: tuple[str, ...]) -> HeartbeatResult:
        """Send a heartbeat with another subscription."""
        client.topics = topics
        event = HeartbeatRequested(
            client.member_id,
            client.epoch,
            client.instance_id,
            None,
            "client",
            "/host",
            REBALANCE_MS,
            topics,
            None,
            None,
            client.owned,
        )
        result = self.group.heartbeat(event, Moment(self.now_ms, self.now_ms))
        client.epoch = result.epoch
        assert result.assignment is not None
        client.wanted = result.assignment
        return result

    def settle(self, *clients: Client, rounds: int = 12) -> None:
        """Send heartbeats of all members, and obey the answers, `rounds` times."""
        for _ in range(rounds):
            for client in clients:
                self.send(client)
                self.obey(client)

    def advance(self, delay_ms: int) -> None:
        until_ms = self.now_ms + delay_ms
        while (due_ms := self.group.next_deadline_ms()) <= until_ms:
            self.now_ms = max(self.now_ms, due_ms)
            self.group.on_time(Moment(self.now_ms, self.now_ms))
        self.now_ms = until_ms


def partitions_of(driver: ConsumerDriver, name: str, *numbers: int) -> list[Partition]:
    return [(driver.id_of(name), number) for number in numbers]
