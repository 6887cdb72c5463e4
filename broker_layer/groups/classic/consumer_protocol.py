"""Topics in the metadata that members of the "consumer" protocol type send.

Leaves the fields after the topics (user data, owned partitions, rack) to the members.
Format: int16 version; int32 count; for each topic int16 length and UTF-8; big-endian.
Invariants: the result for any bytes is the topics or None.
"""

import struct

CONSUMER_PROTOCOL_TYPE = "consumer"


def subscribed_topics(metadata: bytes) -> tuple[str, ...] | None:
    """Return the subscribed topics; None for bytes in another format."""
    try:
        version, count = struct.unpack_from(">hi", metadata)
        if version < 0 or not 0 <= count <= len(metadata) // 2:
            return None
        position, topics = 6, []
        for _ in range(count):
            (length,) = struct.unpack_from(">h", metadata, position)
            position += 2
            if length < 0 or position + length > len(metadata):
                return None
            topics.append(metadata[position : position + length].decode())
            position += length
    except (struct.error, UnicodeDecodeError):
        return None
    return tuple(topics)
