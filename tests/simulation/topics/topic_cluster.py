"""One simulated cluster of bookies and brokers, with the topics of the plan.

Leaves bookies, network and metadata service to `tests.simulation.cluster`, and the users' work to
`producing`, `transacting`, `reading` and `grouping`.
"""

import asyncio

from broker_layer.coordinator_partitions import partition_of_key
from tests.simulation.checkers.checker import Checkers
from tests.simulation.cluster import Cluster
from tests.simulation.loop import SimulationLoop
from tests.simulation.model import Model
from tests.simulation.topics.broker_nodes import BrokerNode, KafkaNode
from tests.simulation.topics.history import History, OffsetHistory
from tests.simulation.topics.holding import Holdings
from tests.simulation.topics.topic_plan import GROUPS_WITH_MEMBERS, TopicsPlan
from tests.simulation.transport import Endpoint


class BytesTap:
    """Counts the messages of a connection, and adds their bytes to the history's hash."""

    def __init__(self, model: Model, number: int, *, is_answer: bool) -> None:
        self._model = model
        self._number = number
        self._is_answer = is_answer

    def sent(self, data: bytes) -> None:
        """See `tests.simulation.transport.Tap`."""
        self._model.message_count += 1
        self._model.note_bytes(self._number, from_bookie=self._is_answer, data=data)

    def delivered(self, total_bytes: int) -> None:
        """See `tests.simulation.transport.Tap`."""


class TopicCluster(Cluster):
    """All parts of one run."""

    def __init__(self, loop: SimulationLoop, plan: TopicsPlan, model: Model) -> None:
        super().__init__(loop, plan.base, model)
        self.topics_plan = plan
        self.checkers = Checkers(model, [])  # the other simulation checks ledgers
        self.history = History(model)
        self.offsets = OffsetHistory(model)
        self.brokers = [BrokerNode(self, number) for number in range(plan.broker_count)]
        self.users: list[KafkaNode] = []
        self.doomed: dict[str, None] = {}
        """Topics, by the names that identify them, whose deletion was requested."""
        self.holdings = Holdings(model.report, lambda: loop.now_s)
        self._tapped = 0
        self.network.make_taps = self._make_byte_taps

    @property
    def topic_names(self) -> list[str]:
        """Topics of the run."""
        return [topic.name for topic in self.topics_plan.topics]

    def partitions(self) -> list[tuple[str, int]]:
        """Return every partition of the topics."""
        return [
            (topic.name, number)
            for topic in self.topics_plan.topics
            for number in range(topic.partitions)
        ]

    def topic_of_group(self, group_id: str) -> str:
        """Return the topic that a group commits offsets for."""
        is_shared = group_id in GROUPS_WITH_MEMBERS
        return self.topics_plan.group_topic.name if is_shared else self.topic_names[0]

    def note_coordinator(self, host: str, partition: int, epoch: int) -> None:
        """Record that a broker serves the groups of a partition of `__consumer_offsets`."""
        self.model.note("coordinator", f"{host} of {partition}, epoch {epoch}")
        for group_id in GROUPS_WITH_MEMBERS:
            if partition_of_key(group_id, self.topics_plan.state_partitions) == partition:
                self.holdings.note_load(group_id, host, epoch)

    def _make_byte_taps(
        self, _near: Endpoint, _far: Endpoint, _protocol: asyncio.BaseProtocol
    ) -> tuple[BytesTap, BytesTap]:
        self._tapped += 1
        return (
            BytesTap(self.model, self._tapped, is_answer=False),
            BytesTap(self.model, self._tapped, is_answer=True),
        )
