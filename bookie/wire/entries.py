"""Codec of the answer to a read: a short header and complete batches after it.

Leaves checking the batches to the client.

Format of an ENTRIES frame's body, little-endian:

| offset | size | field |
|---|---|---|
| 0 | 2 | status of `next_entry_id` (`Status`): OK when only the size limit ended the answer |
| 2 | 2 | batch count |
| 4 | 4 | reserved, 0 |
| 8 | 8 | this bookie's LAC for the ledger (signed) |
| 16 | 8 | `next_entry_id`: the first requested entry that is not in the answer |
| 24 | | the batches, back to back |

Invariant: the batches hold, in order and without gaps, every requested entry below `next_entry_id`;
the first batch may begin before the first requested entry (keyed batches are not cut).
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from bookie.wire.batch import BatchView, Buffer, parse_header
from bookie.wire.errors import MessageError
from bookie.wire.messages import Status
from metadata.ids import ENTRY_ID_MAX, NO_ENTRY, EntryId

_HEADER = struct.Struct("<HHIqq")
ENTRIES_HEADER_BYTES: Final = _HEADER.size
ENTRIES_BATCHES_MAX: Final = 65_535
"""Maximum of the batch count. An answer with more batches ends early."""

_STATUSES: Final = {int(status): status for status in Status}


@dataclass(frozen=True, slots=True)
class Entries:
    """Answer to a read or a long poll."""

    status: Status
    lac: EntryId
    next_entry_id: EntryId
    batches: tuple[BatchView, ...]


def encode_entries_header(
    status: Status, lac: EntryId, next_entry_id: EntryId, batch_count: int
) -> bytes:
    """Return the header before the batches in an ENTRIES frame."""
    return _HEADER.pack(status, batch_count, 0, lac, next_entry_id)


def encode_entries(
    status: Status, lac: EntryId, next_entry_id: EntryId, batches: Sequence[Buffer]
) -> list[Buffer]:
    """Return the body of an ENTRIES frame as buffers to write one after another."""
    return [encode_entries_header(status, lac, next_entry_id, len(batches)), *batches]


def decode_entries(body: memoryview) -> Entries:
    """Decode the body of an ENTRIES frame. The batches are views and not checked yet. Raises
    MessageError or BatchError.
    """
    if len(body) < ENTRIES_HEADER_BYTES:
        raise MessageError(f"{len(body)} bytes are too few for an answer to a read")
    status, count, _reserved, lac, next_entry_id = _HEADER.unpack_from(body)
    known = _STATUSES.get(status)
    if known is None:
        raise MessageError(f"status {status} is unknown: a newer release may have sent it")
    if not NO_ENTRY <= lac <= ENTRY_ID_MAX or not 0 <= next_entry_id <= ENTRY_ID_MAX + 1:
        raise MessageError(f"LAC {lac} or next entry {next_entry_id} is out of range")
    batches: list[BatchView] = []
    offset = ENTRIES_HEADER_BYTES
    for _ in range(count):
        header = parse_header(body, offset)
        batches.append(BatchView(body[offset : offset + header.size], header))
        offset += header.size
    if offset != len(body):
        raise MessageError(f"{len(body) - offset} bytes after the last batch of an answer")
    return Entries(known, EntryId(lac), EntryId(next_entry_id), tuple(batches))
