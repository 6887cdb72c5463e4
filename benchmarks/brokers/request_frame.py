"""Frames of requests to a broker, for benchmarks that send bytes themselves.

Leaves bodies and connections to their users.

Source: KIP-482 for the tagged fields after the header.
"""

import struct
from typing import Final

from broker_layer.kafka.primitives import NO_TAGS
from broker_layer.kafka.versions import SERVED, ApiKey

CORRELATION_ID: Final = 1
NO_CLIENT_ID: Final = -1

_HEAD: Final = struct.Struct(">ihhih")
_LENGTH: Final = struct.Struct(">i")


def is_flexible(key: ApiKey, version: int) -> bool:
    """Return whether a version of a request has tagged fields."""
    return version >= SERVED[key].flexible_from


def request_frame(key: ApiKey, version: int, body: bytes = b"") -> bytes:
    """Return a complete request."""
    end = NO_TAGS if is_flexible(key, version) else b""
    size = _HEAD.size - _LENGTH.size + len(end) + len(body)
    return _HEAD.pack(size, key, version, CORRELATION_ID, NO_CLIENT_ID) + end + body
