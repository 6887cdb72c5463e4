"""The entry of a batch: the batch's bytes with the offset and the epoch that its leader sets.

Leaves the layout to `kafka.record_batch`.

Invariant: the producer's bytes are copied, once more for append times, and are not changed.
"""

import struct
from typing import Final

from broker_layer.kafka.record_batch import RecordBatchHeader, read_header, stamp
from broker_layer.kafka.record_batch.header import LENGTH_END

_PLACE: Final = struct.Struct(">qii")
"""Base offset, bytes after the length field, leader epoch."""
_MAGIC_START: Final = 16
NO_TIMESTAMP: Final = -1


def placed(
    header: RecordBatchHeader,
    data: bytes | bytearray | memoryview,
    base_offset: int,
    leader_epoch: int,
    append_time_ms: int,
) -> tuple[RecordBatchHeader, bytes]:
    """Return the header and the bytes of a batch with its base offset and leader epoch.

    The offset and the epoch in the returned header may be those of the producer. Unless
    `append_time_ms` is NO_TIMESTAMP, the records get that time.
    """
    place = _PLACE.pack(base_offset, header.size_bytes - LENGTH_END, leader_epoch)
    parts = (place, memoryview(data)[_MAGIC_START:])
    if append_time_ms != NO_TIMESTAMP:
        stamped = bytearray().join(parts)
        stamp(stamped, append_time_ms)
        return read_header(stamped), bytes(stamped)
    return header, b"".join(parts)
