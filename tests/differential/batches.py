"""Record batches of format 2, valid and invalid, and summaries of received ones.

Leaves compression to cramjam. It shares no code with the broker, which it checks.

Format: KIP-98's record batch: 61 bytes of header, then the records; the CRC covers all after it.
"""

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import crc32c

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
CRC_START: Final = 21
LENGTH_END: Final = 12
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
APPEND_TIME: Final = 0x08
MAGIC: Final = 2
FIRST_TIMESTAMP_MS: Final = 1_700_000_000_000
"""Times that tests give are in the past: a broker may refuse what is far ahead of its clock."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Fields of a batch; None stands for the valid value."""

    values: Sequence[bytes] = (b"one", b"two", b"three")
    keys: Sequence[bytes | None] | None = None
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    attributes: int = 0
    base_offset: int = 0
    first_timestamp_ms: int = FIRST_TIMESTAMP_MS
    magic: int = MAGIC
    record_count: int | None = None
    last_offset_delta: int | None = None
    crc: int | None = None
    length: int | None = None
    payload: bytes | None = None
    """Instead of the records: what a compressor made of them."""
    max_timestamp_ms: int | None = None
    extra: bytes = field(default=b"")

    def encode(self) -> bytes:
        """Return its bytes."""
        count = len(self.values)
        payload = self.payload if self.payload is not None else records(self)
        last = self.first_timestamp_ms + max(count - 1, 0)
        after_crc = struct.pack(
            ">hiqqqhii",
            self.attributes,
            self.last_offset_delta if self.last_offset_delta is not None else max(count - 1, 0),
            self.first_timestamp_ms,
            self.max_timestamp_ms if self.max_timestamp_ms is not None else last,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count if self.record_count is not None else count,
        )
        body = after_crc + payload
        crc = self.crc if self.crc is not None else crc32c.crc32c(body)
        length = self.length if self.length is not None else CRC_START - LENGTH_END + len(body)
        head = struct.pack(">qiibI", self.base_offset, length, -1, self.magic, crc)
        return head + body + self.extra


def records(batch: Batch) -> bytes:
    """Return the batch's records, uncompressed."""
    keys = batch.keys if batch.keys is not None else [None] * len(batch.values)
    made = bytearray()
    for position, (key, value) in enumerate(zip(keys, batch.values, strict=True)):
        body = b"\0" + _varint(position) + _varint(position) + _bytes(key) + _bytes(value)
        body += _varint(0)
        made += _varint(len(body)) + body
    return bytes(made)


def message_set(magic: int, value: bytes = b"old") -> bytes:
    """Return one message of the formats before batches (magic 0 or 1)."""
    import zlib  # noqa: PLC0415

    timestamp = struct.pack(">q", FIRST_TIMESTAMP_MS) if magic == 1 else b""
    content = struct.pack(">bb", magic, 0) + timestamp
    content += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(content)) + content
    return struct.pack(">qi", 0, len(message)) + message


def summary(data: bytes) -> list[str]:
    """Return for every batch its first offset, its number of records and its attributes."""
    found, position = [], 0
    while position + HEADER.size <= len(data):
        base, length, _, _, _, attributes, _, _, _, producer_id, _, _, count = HEADER.unpack_from(
            data, position
        )
        words = [f"{base}+{count}"]
        words += ["transactional"] if attributes & TRANSACTIONAL else []
        if attributes & CONTROL:
            (kind,) = struct.unpack_from(">h", data, position + HEADER.size + 7)
            words.append("commit" if kind else "abort")
        words += ["compressed"] if attributes & 7 else []
        words += ["append time"] if attributes & APPEND_TIME else []
        words += ["with producer"] if producer_id >= 0 else []
        found.append(" ".join(words))
        position += LENGTH_END + length
    return found


def _varint(value: int) -> bytes:
    value = (value << 1) ^ (value >> 63)
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def _bytes(value: bytes | None) -> bytes:
    return _varint(-1) if value is None else _varint(len(value)) + value
