"""Write of several buffers to a transport, without two faults of asyncio's own transports.

Leaves the time of writing, and the reaction to a pause, to the protocols.

Invariants: a transport whose buffer is above its limit has called `pause_writing` of its protocol;
no transport gets an empty buffer. From Python 3.12 on a transport keeps an empty buffer that comes
last: until the next write it is ready to write all the time, and `close` does not end it.
Source: CVE-2024-12254: `writelines` of asyncio's own transports does not check the buffer's limit
in Python 3.12.0 to 3.12.8, 3.13.0 and 3.13.1. Setting the limits checks the buffer again. Measured
on Python 3.12.1 and 3.13.0: `_adjust_leftover_buffer` stops before an empty buffer.
"""

import asyncio
import sys
from collections.abc import Sequence
from typing import Final

_VERSION: Final = tuple(sys.version_info[:3])
MISSES_PAUSE: Final = (3, 12) <= _VERSION < (3, 12, 9) or (3, 13) <= _VERSION < (3, 13, 2)


def write_all(
    transport: asyncio.WriteTransport,
    buffers: Sequence[bytes | bytearray | memoryview],
    buffer_bytes_max: int,
) -> None:
    """Write all buffers at once to a transport with this limit; some may be empty."""
    transport.writelines([each for each in buffers if len(each)])
    if MISSES_PAUSE:
        transport.set_write_buffer_limits(buffer_bytes_max)
