"""Check that no epoch of a partition has two leaderships.

Leaves the leaders that clients see to `history`.

Invariant checked: after the end of a leader's log, the next one has another epoch (KIP-101);
otherwise the records of the two could not be distinguished.
"""

from typing import TYPE_CHECKING

from tests.simulation.topics.topic_cluster import TopicCluster

if TYPE_CHECKING:
    from broker_layer.log.topic_log import TopicLog


class Leaderships:
    """Every log that any broker held at a check."""

    def __init__(self, cluster: TopicCluster) -> None:
        self._cluster = cluster
        self._seen: dict[tuple[str, int, int], TopicLog] = {}

    def look(self) -> None:
        """Compare the logs held now with earlier ones."""
        for broker in self._cluster.brokers:
            for log in broker.logs():
                place = log.topic, log.key.partition
                known = self._seen.setdefault((*place, log.leader_epoch), log)
                if known is not log:
                    text = f"epoch {log.leader_epoch} was led before it began on {broker.host}"
                    self._cluster.history.report("epochs", place, text)
