"""Makes the entry of a batch: its bytes with the offset and the epoch that its leader gives it.

Leaves the layout to `kafka.record_batch`.

Invariant: what a producer sent is copied once, and is not changed.
"""

import struct
from typing import Final

from broker_layer.kafka.record_batch import BatchHeader, read_header, stamp

_OFFSET: Final = struct.Struct(">q")
_EPOCH: Final = struct.Struct(">i")
_LENGTH_START: Final = 8
_EPOCH_START: Final = 12
_MAGIC_START: Final = 16
NO_TIMESTAMP: Final = -1


def placed(
    header: BatchHeader,
    data: bytes | bytearray | memoryview,
    base_offset: int,
    leader_epoch: int,
    append_time_ms: int,
) -> tuple[BatchHeader, bytes]:
    """Return the header and the bytes of a batch at its place in the log; unless
    `append_time_ms` is NO_TIMESTAMP, its records get that time.
    """
    view = memoryview(data)
    parts = (
        _OFFSET.pack(base_offset),
        view[_LENGTH_START:_EPOCH_START],
        _EPOCH.pack(leader_epoch),
        view[_MAGIC_START:],
    )
    if append_time_ms != NO_TIMESTAMP:
        stamped = bytearray().join(parts)
        stamp(stamped, append_time_ms)
        return read_header(stamped), bytes(stamped)
    return header._replace(base_offset=base_offset, leader_epoch=leader_epoch), b"".join(parts)
