"""The current leader of a partition in answers to Produce and Fetch.

Clients that sent a request to the wrong broker learn the leader from the answer. Leaves the choice
of errors that carry a leader to `server.service_tools`.

Source: KIP-951.
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from broker_layer.kafka.primitives import INT32, NO_TAGS, count_of, string

_LEADER: Final = struct.Struct(">ii")
NODE_ENDPOINTS_TAG: Final = 0


class CurrentLeader(NamedTuple):
    """The leader of a partition, -1 for none, and its leader epoch."""

    leader_id: int
    leader_epoch: int

    def encode(self) -> bytes:
        """Encode the content of the tagged field."""
        return _LEADER.pack(self.leader_id, self.leader_epoch) + NO_TAGS


class NodeEndpoint(NamedTuple):
    """Address of a leader that an answer names."""

    node_id: int
    host: str
    port: int
    rack: str | None = None


def encode_endpoints(endpoints: Sequence[NodeEndpoint]) -> bytes:
    """Encode the content of the tagged field."""
    parts = [count_of(len(endpoints), is_flexible=True)]
    for each in endpoints:
        parts += (
            INT32.pack(each.node_id),
            string(each.host, is_flexible=True),
            INT32.pack(each.port),
            string(each.rack, is_flexible=True),
            NO_TAGS,
        )
    return b"".join(parts)
