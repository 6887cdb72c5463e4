"""Bodies of Produce requests with one batch, for benchmarks that send frames themselves.

Leaves headers and connections to their users.
"""

import struct
from collections.abc import Sequence
from typing import Final

from broker_layer.kafka.primitives import NO_TAGS, varint
from broker_layer.kafka.record_batch import Record, build_batch

PRODUCE_VERSION: Final = 9
TIMEOUT_MS: Final = 30_000


def produce_body(topic: bytes, values: Sequence[bytes]) -> bytes:
    """Return a request for one batch in partition 0, acknowledged by all."""
    records = [Record(number, 0, None, value) for number, value in enumerate(values)]
    batch = bytes(build_batch(records))
    partition = struct.pack(">i", 0) + varint(len(batch) + 1) + batch + NO_TAGS
    name = varint(len(topic) + 1) + topic
    topics = varint(2) + name + varint(2) + partition + NO_TAGS
    return NO_TAGS + struct.pack(">hi", -1, TIMEOUT_MS) + topics + NO_TAGS
