"""Sees to it that no epoch of a partition has two leaderships.

Leaves what clients see of leaders to `history`.

Invariant checked: whatever ends a leader's log, the next one has another epoch (KIP-101): else what
two of them wrote could not be told apart.
"""

from typing import TYPE_CHECKING

from tests.simulation.topics.topic_cluster import TopicCluster

if TYPE_CHECKING:
    from broker_layer.log.topic_log import TopicLog


class Leaderships:
    """Every log that any broker held when it was looked at."""

    def __init__(self, cluster: TopicCluster) -> None:
        self._cluster = cluster
        self._seen: dict[tuple[str, int, int], TopicLog] = {}

    def look(self) -> None:
        """Compare what is held now with what was."""
        for broker in self._cluster.brokers:
            for log in broker.logs():
                place = log.topic, log.key.partition
                known = self._seen.setdefault((*place, log.leader_epoch), log)
                if known is not log:
                    text = f"epoch {log.leader_epoch} was led before it began on {broker.host}"
                    self._cluster.history.report("epochs", place, text)
