"""Says which partition of an internal topic keeps the state of a group or a transactional id.

Leaves who leads that partition to `cluster_view.py`.

Invariant: the answer for a key never changes, as the number of partitions is fixed when the topic
is made.

Source: Kafka's GroupCoordinator.partitionFor, so that its tools agree: the absolute value of
Java's String.hashCode, modulo the number of partitions.
"""

from typing import Final

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
INTERNAL_TOPICS: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE)

_INT32_MIN: Final = -(2**31)


def java_string_hash(text: str) -> int:
    """Return what Java's String.hashCode does: over UTF-16 units, in 32 bits with a sign."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for start in range(0, len(units), 2):
        unit = units[start] << 8 | units[start + 1]
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value


def coordinator_partition(key: str, partition_count: int) -> int:
    """Return the partition that a group or transactional id belongs to."""
    assert partition_count > 0, partition_count
    value = java_string_hash(key)
    return (0 if value == _INT32_MIN else abs(value)) % partition_count
