"""Spans of Produce and Fetch requests, with the names of OpenTelemetry's conventions for messaging.

Leaves where spans go to `quire.tracing`.
"""

from collections.abc import Sequence
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from quire.tracing.spans import AttributeValue, SpanKind, record

SYSTEM: Final = "messaging.system"
OPERATION: Final = "messaging.operation.name"
TOPIC: Final = "messaging.destination.name"
PARTITION: Final = "messaging.destination.partition.id"
PARTITIONS: Final = "quire.partitions"


def record_request(
    name: str, duration_s: float, partitions: Sequence[tuple[str, int, ErrorCode]]
) -> None:
    """Record a request that is answered now, with the topic, number and error of its partitions.
    The first one has attributes of its own.
    """
    attributes: dict[str, AttributeValue] = {
        SYSTEM: "kafka",
        OPERATION: name.lower(),
        PARTITIONS: len(partitions),
    }
    if partitions:
        topic, partition, _ = partitions[0]
        attributes |= {TOPIC: topic, PARTITION: str(partition)}
    error = next((each.name for _, _, each in partitions if each), "")
    record(name, SpanKind.SERVER, duration_s, attributes, error=error)
