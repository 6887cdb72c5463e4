"""Correction of the checksums of changed bytes, to reach the code after the check.

Leaves the changes to `tests.fuzz.mutations`. Bytes that are too short for a checksum are not
changed.
"""

import hashlib
import hmac
import random
import struct
from typing import Final

from crc32c import crc32c

from bookie.log import records
from bookie.log.records import RECORD_HEADER_BYTES, RecordKind
from bookie.wire.batch import BATCH_HEADER_BYTES, BYTES_PER_ENTRY, FLAG_KEYED, MAC_BYTES

MAC_KEY: Final = bytes(range(32))

_U32: Final = struct.Struct("<I")
_BLOCK: Final = struct.Struct("<cII")
_EXPORT_MAGIC_BYTES: Final = 8
_TRAILER_HASH_BYTES: Final = 32


def seal_batch(data: bytearray, rng: random.Random, offset: int = 0) -> None:
    """Give the batch at `offset` its MAC and CRC.

    Half of the time, its sizes are corrected too, as far as possible.
    """
    room = len(data) - offset
    if room < BATCH_HEADER_BYTES:
        return
    keyed = data[offset + 3] & FLAG_KEYED
    body = BATCH_HEADER_BYTES + MAC_BYTES * keyed
    if rng.random() < 0.5:
        _fit_batch(data, offset, body)
    (count,) = _U32.unpack_from(data, offset + 4)
    (payload_bytes,) = _U32.unpack_from(data, offset + 40)
    size = body + BYTES_PER_ENTRY * count + payload_bytes
    if size > room:
        return
    end = offset + size
    if keyed:
        state = hmac.new(MAC_KEY, data[offset : offset + 44], hashlib.sha256)
        state.update(data[offset + body : end])
        data[offset + BATCH_HEADER_BYTES : offset + body] = state.digest()
    with memoryview(data) as view:
        crc = crc32c(view[offset + BATCH_HEADER_BYTES : end], crc32c(view[offset : offset + 44]))
    _U32.pack_into(data, offset + 44, crc)


def _fit_batch(data: bytearray, offset: int, body: int) -> None:
    """Set payload bytes and lengths to those of the data."""
    room = len(data) - offset - body
    (count,) = _U32.unpack_from(data, offset + 4)
    payload_bytes = room - BYTES_PER_ENTRY * count
    if not 0 < count <= 4096 or payload_bytes < 0:
        return
    _U32.pack_into(data, offset + 40, payload_bytes)
    each, rest = divmod(payload_bytes, count)
    for index in range(count):
        _U32.pack_into(data, offset + body + 4 * index, each + (rest if index == count - 1 else 0))


def seal_record(
    data: bytearray, rng: random.Random, offset: int = 0, lsn: int | None = None
) -> int:
    """Give the record at `offset` its CRCs, and its place if one is given.

    Return the offset of the next record.
    """
    room = len(data) - offset
    if room < RECORD_HEADER_BYTES:
        return len(data)
    (told,) = _U32.unpack_from(data, offset + 4)
    body_bytes = min(int(told), room - RECORD_HEADER_BYTES)
    _U32.pack_into(data, offset + 4, body_bytes)
    end = offset + RECORD_HEADER_BYTES + body_bytes
    if lsn is not None:
        struct.pack_into("<Q", data, offset + 8, lsn)
    is_adds = data[offset + 3] == RecordKind.ADDS
    if is_adds:
        part = bytearray(data[offset + RECORD_HEADER_BYTES : end])
        seal_batch(part, rng)
        data[offset + RECORD_HEADER_BYTES : end] = part
    with memoryview(data) as view:
        body_crc = 0 if is_adds else crc32c(view[offset + RECORD_HEADER_BYTES : end])
        _U32.pack_into(view, offset + 24, body_crc)
        _U32.pack_into(view, offset + 28, crc32c(view[offset : offset + 28]))
    return end


def seal_first_record(data: bytearray, rng: random.Random) -> None:
    """Give the first record of segment 1 its CRCs and its place."""
    seal_record(data, rng, 0, records.lsn_of(1, 0))


def seal_segment(data: bytearray, rng: random.Random, segment: int = 1) -> None:
    """Give every record of a segment its CRCs and its place."""
    offset = 0
    while offset < len(data):
        offset = seal_record(data, rng, offset, records.lsn_of(segment, offset))


def seal_cookie(data: bytearray, _rng: random.Random) -> None:
    """Give a cookie's file its last line."""
    place = data.rfind(b"crc32c ")
    if place >= 0:
        data[place:] = b"crc32c %08x\n" % crc32c(bytes(data[:place]))


def seal_export(data: bytearray, _rng: random.Random) -> None:
    """Give every block of an exported file its CRC, and the trailer its hash."""
    offset = _EXPORT_MAGIC_BYTES
    while offset + _BLOCK.size <= len(data):
        kind, size, _ = _BLOCK.unpack_from(data, offset)
        body = offset + _BLOCK.size
        end = min(len(data), body + size)
        if kind == b"T" and end - body >= _TRAILER_HASH_BYTES:
            data[end - _TRAILER_HASH_BYTES : end] = hashlib.sha256(data[:offset]).digest()
        crc = crc32c(bytes(data[body:end]), crc32c(bytes(data[offset : offset + 5])))
        _U32.pack_into(data, offset + 5, crc)
        offset = end
