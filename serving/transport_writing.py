"""Writes several buffers to a transport, and keeps the promise to pause on every Python.

Leaves when to write, and what a pause means, to the protocols.

Invariants: a transport whose buffer is above its limit has told its protocol to pause.
Source: CVE-2024-12254: `writelines` of asyncio's own transports fills the buffer without a word in
Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1; setting the limits looks at the buffer again.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

_VERSION: Final = tuple(sys.version_info[:3])
FORGETS_TO_PAUSE: Final = (3, 12) <= _VERSION < (3, 12, 9) or (3, 13) <= _VERSION < (3, 13, 2)


def write_all(
    transport: asyncio.WriteTransport,
    buffers: Sequence[bytes | bytearray | memoryview],
    buffer_bytes_max: int,
) -> None:
    """Write all buffers at once to a transport of this limit."""
    transport.writelines(buffers)
    if FORGETS_TO_PAUSE:
        transport.set_write_buffer_limits(buffer_bytes_max)
