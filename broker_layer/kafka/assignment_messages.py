"""Assignment of a member of a classic group of consumers, which the group's leader encodes.

Leaves the topics that a member subscribes to to `groups.classic.consumer_protocol`: a broker reads
them for each member, and nothing else of the embedded protocol.

Format: int16 version, then the body of Kafka's ConsumerProtocolAssignment. A newer version begins
with the fields of the newest known one.

Invariants: bytes are checked against the schema before they are decoded; the result for any bytes
is the partitions or None.

Source: Kafka's message definitions of ConsumerProtocolAssignment; KIP-429.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Final

from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from broker_layer.kafka.errors import KafkaFrameError
from broker_layer.kafka.primitives import INT16
from broker_layer.kafka.schema_guard import guard_of

VERSION_MAX: Final = 3
"""The newest version whose fields are known."""


def assigned_partitions(assignment: bytes) -> tuple[tuple[str, int], ...] | None:
    """Return the assigned partitions as pairs (topic, partition), in the order of the bytes.

    None for bytes in another format, for example of a protocol that is not the consumers'.
    """
    if not assignment:
        return ()
    try:
        (version,) = INT16.unpack_from(assignment)
        if version < 0:
            return None
        known = min(version, VERSION_MAX)
        body = memoryview(assignment)[INT16.size :]
        _guard(known)(body)
        found = ConsumerProtocolAssignment.decode(bytes(body), version=known, header=False)
    except (KafkaFrameError, ValueError, IndexError, struct.error):
        return None
    return tuple(
        (each.topic, partition)
        for each in found.assigned_partitions
        for partition in each.partitions
    )


@cache
def _guard(version: int) -> Callable[[memoryview], None]:
    return guard_of(ConsumerProtocolAssignment.json, version)
