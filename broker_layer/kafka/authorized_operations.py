"""Operations that a client may perform on a topic, a group or the cluster.

Without an authorizer, each client may perform every operation that applies to the kind of resource.
Leaves the rights of a client to `broker_layer.security.rights`. Clients get the operations only in
answers to requests that ask for them.

Source: KIP-430; the operations of each kind are those of Kafka without an authorizer.
"""

from collections.abc import Iterable
from typing import Final

from metadata.security.acls import Operation

__all__ = [
    "CLUSTER_OPERATIONS",
    "GROUP_OPERATIONS",
    "TOPIC_OPERATIONS",
    "Operation",
    "bits_of",
]

TOPIC_OPERATIONS: Final = (
    Operation.READ,
    Operation.WRITE,
    Operation.CREATE,
    Operation.DELETE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
GROUP_OPERATIONS: Final = (
    Operation.READ,
    Operation.DELETE,
    Operation.DESCRIBE,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
)
CLUSTER_OPERATIONS: Final = (
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.CLUSTER_ACTION,
    Operation.DESCRIBE_CONFIGS,
    Operation.ALTER_CONFIGS,
    Operation.IDEMPOTENT_WRITE,
)


def bits_of(operations: Iterable[Operation]) -> int:
    """Return the bit field of operations that answers contain."""
    return sum(1 << each for each in operations)
