"""The current leader in errors for clients that use the wrong broker (KIP-951).

Leaves the knowledge of leaders to `control.cluster_view`.

Invariant: a broker is described as in Metadata, including its rack. Java's consumer treats one
broker with two descriptions as two brokers, and sends each Fetch of a session twice, without need.
"""

from collections.abc import Iterable
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.leaders import CurrentLeader, NodeEndpoint
from broker_layer.server.ports import ClusterNames

HINTED: Final = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class LeaderHints:
    """Lookup of leaders for errors."""

    def __init__(self, broker_id: int, names: ClusterNames) -> None:
        self._broker_id = broker_id
        self._names = names

    def leader_of(self, topic: str, partition: int, error: ErrorCode) -> CurrentLeader | None:
        """Return the leader, if the error can mean that another broker leads."""
        if error not in HINTED:
            return None
        known = self._names.leader_of(topic, partition)
        if known is None or known[0] < 0:
            return None
        if known[0] == self._broker_id and error == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            return None  # this broker will lead the partition, and does not yet
        return CurrentLeader(*known)

    def endpoints(
        self, leaders: Iterable[CurrentLeader | None], listener: str
    ) -> list[NodeEndpoint]:
        """Return the addresses of leaders for clients of a listener."""
        found: dict[int, NodeEndpoint] = {}
        for leader in leaders:
            if leader is None or leader.leader_id in found:
                continue
            address = self._names.address_of(leader.leader_id, listener)
            if address is not None:
                rack = self._names.rack_of(leader.leader_id)
                found[leader.leader_id] = NodeEndpoint(leader.leader_id, *address, rack)
        return list(found.values())
