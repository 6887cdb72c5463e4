"""Mapping of group ids and transactional ids to partitions of internal topics, as in Kafka.

Leaves the topics' partition counts to the callers.

Invariants: pure; the same key and count give the same partition in every process and release.

Source: the definition of Java's `String.hashCode`, over UTF-16 code units; Kafka's placement of
groups on `__consumer_offsets`.
"""

from typing import Final

_MASK: Final = 0xFFFF_FFFF
_LOWEST: Final = -0x8000_0000


def java_string_hash(text: str) -> int:
    """Return the signed 32-bit hash of the text, as Java's `String.hashCode` computes it."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & _MASK
    return code - (1 << 32) if code >= 1 << 31 else code


def partition_of_key(key: str, partition_count: int) -> int:
    """Return the partition, 0 to `partition_count` - 1, that keeps the state of the key."""
    assert partition_count > 0, "an internal topic has partitions"
    code = java_string_hash(key)
    return (0 if code == _LOWEST else abs(code)) % partition_count
