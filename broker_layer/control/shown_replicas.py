"""Replicas and in-sync replicas of a partition, as clients see them.

Leaves the leader's knowledge to its log and to `ledger_health.py`, and reports to other brokers to
`partition_upkeep.py`.

Invariant: a partition with a leader always shows replicas, at least one of them in sync. A
partition that its leader cannot take over shows none in sync.

Source: topics design, "The mapping" (replicas, ISR).
"""

from dataclasses import dataclass

from broker_layer.control.cluster_view import ClusterView
from broker_layer.control.ledger_health import LedgerHealth
from broker_layer.control.live_bookies import LiveBookies
from broker_layer.control.partition_manager import PartitionManager
from broker_layer.errors import TopicError
from broker_layer.log.topic_configs import TopicDefaults, replication_factor
from metadata.topics.in_sync import InSyncReport
from metadata.topics.partition_store import PartitionKey
from metadata.topics.replica_numbers import ReplicaNumbers
from metadata.topics.topic import NO_LEADER, TopicRecord


@dataclass(frozen=True, slots=True)
class ShownReplicas:
    """The replicas of one partition, by their numbers."""

    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]

    @property
    def offline(self) -> list[int]:
        """The replicas that are not in sync."""
        return [each for each in self.replicas if each not in self.in_sync]


def offline_report(epoch: int) -> InSyncReport:
    """Return the report of a leader that cannot take a partition over."""
    return InSyncReport(epoch, (), ())


@dataclass(eq=False, repr=False)
class ReplicaView:
    """Finds replicas: in this broker's logs, and for other partitions in their leaders' reports.

    A partition without a ledger is shown with live bookies, because its own are not chosen yet.
    """

    _view: ClusterView
    _manager: PartitionManager
    _numbers: ReplicaNumbers
    _bookies: LiveBookies
    _health: LedgerHealth
    _defaults: TopicDefaults

    def of(self, record: TopicRecord, partition: int) -> ShownReplicas:
        """Return the replicas to show for a partition."""
        leadership = record.partitions[partition]
        if self.is_offline(record, partition):
            return ShownReplicas(self._expected(record, leadership.leader).replicas, ())
        if leadership.leader == self._manager.broker_id:
            led = self._led(record.name, partition)
            if led is not None:
                return led
        report = self._view.reports.find(PartitionKey(record.topic_id, partition))
        if report is not None and report.replicas:
            return ShownReplicas(report.replicas, report.in_sync or report.replicas[:1])
        return self._expected(record, leadership.leader)

    def is_offline(self, record: TopicRecord, partition: int) -> bool:
        """Return whether a partition's leader reports that it cannot take the partition over."""
        leadership = record.partitions[partition]
        if leadership.leader == self._manager.broker_id:
            return self._manager.is_offline(record.name, partition)
        report = self._view.reports.find(PartitionKey(record.topic_id, partition))
        return report == offline_report(leadership.leader_epoch)

    def _led(self, topic: str, partition: int) -> ShownReplicas | None:
        try:
            log = self._manager.log_of(topic, partition)
        except TopicError:
            return None
        replicas, in_sync = self._health.replicas_of(log).known_numbers(self._numbers)
        return ShownReplicas(replicas, in_sync or replicas[:1]) if replicas else None

    def _expected(self, record: TopicRecord, leader: int) -> ShownReplicas:
        count = replication_factor(record.configs, self._defaults)
        numbers = tuple(self._bookies.numbers()[:count])
        if not numbers and leader != NO_LEADER:
            numbers = (leader,)
        return ShownReplicas(numbers, numbers)
