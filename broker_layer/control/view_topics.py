"""Adapter of the cluster's view for the coordinators of groups and transactions.

Leaves updating the view to `cluster_view`.
"""

from collections.abc import Callable, Iterable

from broker_layer.control.cluster_view import ClusterView, TopicChanged, ViewEvent
from broker_layer.coordinator_partitions import CONSUMER_OFFSETS, TRANSACTION_STATE


class ViewTopics:
    """Present names, ids and partition counts of topics (`groups.topics.GroupTopics`)."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view

    @property
    def is_complete(self) -> bool:
        """Whether all topics were read. Before that, a topic that is not shown may exist."""
        return self._view.is_complete

    def topic_id_of(self, name: str) -> bytes | None:
        """Return the id of a topic; None when there is no such topic."""
        return self._view.topic_id_of(name)

    def name_of(self, topic_id: bytes) -> str | None:
        """Return the name of a topic; None when no topic has this id."""
        return self._view.topic_name_of(topic_id)

    def partition_count(self, name: str) -> int:
        """Return the number of a topic's partitions; 0 if there is no such topic."""
        record = self._view.topics.get(name)
        return 0 if record is None else len(record.partitions)

    def group_partition_count(self) -> int:
        """Return the number of partitions for groups; 0 before the topic exists."""
        return self.partition_count(CONSUMER_OFFSETS)

    def transaction_partition_count(self) -> int:
        """Return the number of partitions for transactional ids; 0 before the topic exists."""
        return self.partition_count(TRANSACTION_STATE)

    def names(self) -> Iterable[str]:
        """Return the names of all topics."""
        return list(self._view.topics)

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call back after a topic was created, removed or changed; return what cancels that."""

        def handle(event: ViewEvent) -> None:
            if isinstance(event, TopicChanged):
                callback()

        return self._view.on_event(handle)
