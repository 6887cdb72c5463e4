"""Batch of entries: the unit that is sent, logged, indexed and read.

Leaves digest seeds and MAC keys to `ledger_client.digest`, and the frame around a batch to
`bookie.wire.frames`.

Format, little-endian:

| offset | size | field |
|---|---|---|
| 0 | 2, 1, 1 | magic, version, flags (1 = keyed, 2 = slice) |
| 4 | 4 | entry count n, 1..4096 |
| 8 | 8, 8 | ledger id, first entry id |
| 24 | 8 | the writer's LAC when it sent the batch (signed) |
| 32 | 8 | the ledger's bytes before the first entry |
| 40 | 4 | payload bytes |
| 44 | 4 | CRC32C of bytes 0..43 and everything from 48 |
| 48 | 0 or 32 | keyed: HMAC-SHA256 over bytes 0..43 and all that follows the MAC |
| ... | 4n | lengths |
| ... | 4n | entry digests: crc32c(payload, (seed + entry id) mod 2^32) |
| ... | | payloads, back to back |

Invariants: a digest binds ledger (by the seed), entry id and payload, never LAC or batch
boundaries. A slice is the part of an unkeyed batch that a bookie cuts out: its entry digests are
the writer's, its CRC is the bookie's, and its LAC and length must not be trusted.

Source: protocol rule 4.2; storage design, "The batch".
"""

import hashlib
import hmac
import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

from crc32c import crc32c

from bookie.wire.errors import BatchError
from metadata.ids import ENTRY_ID_MAX, LEDGER_ID_MAX, NO_ENTRY, EntryId, LedgerId

Buffer = bytes | bytearray | memoryview

BATCH_MAGIC: Final = 0x5142
BATCH_VERSION: Final = 1
FLAG_KEYED: Final = 1
FLAG_SLICE: Final = 2
BATCH_ENTRIES_MAX: Final = 4096
ENTRY_BYTES_MAX: Final = 8 * 1024 * 1024
"""Default maximum size of an entry, for bookies and clients."""
BATCH_HEADER_BYTES: Final = 48
MAC_BYTES: Final = 32
BYTES_PER_ENTRY: Final = 8
LENGTH_MAX: Final = 2**63 - 1
"""Maximum bytes of a ledger: the maximum of a signed 64-bit field."""

_CHECKED_HEADER = struct.Struct("<HBBIQQqQI")
_HEADER = struct.Struct("<HBBIQQqQII")
_CRC = struct.Struct("<I")
_CRC_OFFSET: Final = 44
_SEED_MODULUS: Final = 2**32
_FLAGS_KNOWN: Final = (0, FLAG_KEYED, FLAG_SLICE)  # keyed batches are never cut
assert _CHECKED_HEADER.size == _CRC_OFFSET
assert _HEADER.size == BATCH_HEADER_BYTES


class BatchHeader(NamedTuple):
    """Fixed part of a batch; `size` is the size of the complete batch."""

    ledger_id: LedgerId
    first_entry_id: EntryId
    count: int  # type: ignore[assignment]  # tuple.count is not used
    lac: EntryId
    length_before: int
    payload_bytes: int
    flags: int
    crc: int

    @property
    def last_entry_id(self) -> EntryId:
        """Last entry id in the batch."""
        return EntryId(self.first_entry_id + self.count - 1)

    @property
    def is_keyed(self) -> bool:
        """Whether the batch has a MAC."""
        return bool(self.flags & FLAG_KEYED)

    @property
    def is_slice(self) -> bool:
        """Whether a bookie cut the batch: then its LAC and length are not the writer's."""
        return bool(self.flags & FLAG_SLICE)

    @property
    def body_offset(self) -> int:
        """Offset of the lengths."""
        return BATCH_HEADER_BYTES + MAC_BYTES * (self.flags & FLAG_KEYED)

    @property
    def size(self) -> int:
        """Bytes of the complete batch."""
        return self.body_offset + BYTES_PER_ENTRY * self.count + self.payload_bytes


def parse_header(data: Buffer, offset: int = 0) -> BatchHeader:
    """Decode the header at `offset`, and check its fields but not its CRC. Raises BatchError."""
    if len(data) - offset < BATCH_HEADER_BYTES:
        raise BatchError(f"{len(data) - offset} bytes are too few for a batch header")
    (
        magic,
        version,
        flags,
        count,
        ledger_id,
        first_entry_id,
        lac,
        length_before,
        payload_bytes,
        crc,
    ) = _HEADER.unpack_from(data, offset)
    if magic != BATCH_MAGIC or version != BATCH_VERSION:
        raise BatchError(
            f"not a batch of version {BATCH_VERSION}: magic {magic:#x}, version {version}"
        )
    if flags not in _FLAGS_KNOWN:
        raise BatchError(f"unknown batch flags {flags:#x}")
    if not 1 <= count <= BATCH_ENTRIES_MAX:
        raise BatchError(f"a batch holds 1..{BATCH_ENTRIES_MAX} entries, not {count}")
    if ledger_id > LEDGER_ID_MAX or first_entry_id + count - 1 > ENTRY_ID_MAX:
        raise BatchError(f"ledger {ledger_id} entry {first_entry_id} is out of range")
    if not NO_ENTRY <= lac < first_entry_id + count:
        raise BatchError(f"LAC {lac} cannot go with first entry {first_entry_id}")
    if length_before + payload_bytes > LENGTH_MAX:
        raise BatchError(f"a ledger of {length_before} + {payload_bytes} bytes is out of range")
    return BatchHeader(
        ledger_id, first_entry_id, count, lac, length_before, payload_bytes, flags, crc
    )


def is_intact(data: Buffer) -> bool:
    """Return whether `data` is one complete batch that matches its CRC. It is like
    `BatchView.verify_crc`, but needs no view for each of a replay's many batches.
    """
    if len(data) < BATCH_HEADER_BYTES:
        return False
    magic, version, flags, count, _, _, _, _, payload_bytes = _CHECKED_HEADER.unpack_from(data)
    size = BATCH_HEADER_BYTES + BYTES_PER_ENTRY * count + payload_bytes
    if flags & FLAG_KEYED:
        size += MAC_BYTES
    if magic != BATCH_MAGIC or version != BATCH_VERSION or size != len(data):
        return False
    (crc,) = _CRC.unpack_from(data, _CRC_OFFSET)
    view = memoryview(data)
    return bool(crc32c(view[BATCH_HEADER_BYTES:], crc32c(view[:_CRC_OFFSET])) == crc)


class BatchView:
    """View of a batch in a buffer of the caller. Nothing is copied or checked until a method does
    it.
    """

    __slots__ = ("_body_offset", "data", "header")

    def __init__(self, data: Buffer, header: BatchHeader | None = None) -> None:
        """Wrap the batch that starts at the buffer's first byte; ignore bytes after it. Raises
        BatchError.
        """
        self.header = header = parse_header(data) if header is None else header
        self._body_offset = offset = BATCH_HEADER_BYTES + MAC_BYTES * (header.flags & FLAG_KEYED)
        size = offset + BYTES_PER_ENTRY * header.count + header.payload_bytes
        if len(data) < size:
            raise BatchError(f"{len(data)} bytes of a batch of {size}")
        view = memoryview(data)
        self.data = view if len(view) == size else view[:size]

    def verify_crc(self) -> None:
        """Check every byte against the batch CRC, and the lengths against the payload size. Raises
        BatchError.
        """
        data, header = self.data, self.header
        if crc32c(data[BATCH_HEADER_BYTES:], crc32c(data[:_CRC_OFFSET])) != header.crc:
            raise BatchError(f"{self.describe()}: the batch CRC does not match")
        if sum(self.lengths) != header.payload_bytes:
            raise BatchError(f"{self.describe()}: lengths do not add up to the payload size")

    def verify_mac(self, key: bytes) -> None:
        """Check a keyed batch against its MAC. Raises BatchError."""
        if not self.header.is_keyed:
            raise BatchError(f"{self.describe()}: the batch of a keyed ledger has no MAC")
        mac = hmac.new(key, self.data[:_CRC_OFFSET], hashlib.sha256)
        mac.update(self.data[self._body_offset :])
        stored = self.data[BATCH_HEADER_BYTES : BATCH_HEADER_BYTES + MAC_BYTES]
        if not hmac.compare_digest(mac.digest(), stored):
            raise BatchError(
                f"{self.describe()}: the MAC does not match: wrong password or damaged"
            )

    def verify_digests(self, seed: int) -> None:
        """Check each entry against the writer's digest, which also covers ledger and entry id.
        Raises BatchError.
        """
        expected = list(self.digests)
        digests = entry_digests(self.payload_views(), self.header.first_entry_id, seed)
        if digests != expected:
            bad = next(i for i, (a, b) in enumerate(zip(digests, expected, strict=True)) if a != b)
            raise BatchError(
                f"{self.describe()}: entry {self.header.first_entry_id + bad} fails its digest"
            )

    @property
    def lengths(self) -> tuple[int, ...]:
        """Payload size of each entry, in bytes."""
        return _u32s(self.header.count).unpack_from(self.data, self._body_offset)

    @property
    def packed_lengths(self) -> memoryview:
        """Payload size of each entry, as it is stored: 4 bytes each, little-endian."""
        return self.data[self._body_offset : self._body_offset + 4 * self.header.count]

    @property
    def digests(self) -> tuple[int, ...]:
        """Digest of each entry."""
        count = self.header.count
        return _u32s(count).unpack_from(self.data, self._body_offset + 4 * count)

    @property
    def payload(self) -> memoryview:
        """All payloads, back to back."""
        return self.data[self._body_offset + BYTES_PER_ENTRY * self.header.count :]

    def offsets(self) -> list[int]:
        """Return the offset of each payload in `payload`, and the end of the last one: n + 1
        numbers.
        """
        return list(accumulate(self.lengths, initial=0))

    def payload_views(self) -> list[memoryview]:
        """Return a view of each entry's payload."""
        payload, offsets = self.payload, self.offsets()
        return [payload[a:b] for a, b in pairwise(offsets)]

    def entry(self, index: int) -> bytes:
        """Return a copy of one payload, given its index in the batch."""
        lengths = self.lengths
        start = sum(lengths[:index])
        return bytes(self.payload[start : start + lengths[index]])

    def cut(self, first_entry_id: EntryId, last_entry_id: EntryId) -> bytearray | memoryview:
        """Return a slice of the batch with only the given entries; the complete batch if it is
        keyed or all entries are requested. The range must be within the batch.
        """
        header = self.header
        assert header.first_entry_id <= first_entry_id <= last_entry_id <= header.last_entry_id
        whole = first_entry_id == header.first_entry_id and last_entry_id == header.last_entry_id
        if whole or header.is_keyed:
            return self.data
        skip, count = first_entry_id - header.first_entry_id, last_entry_id - first_entry_id + 1
        lengths, offsets = self.lengths, self.offsets()
        start, stop = offsets[skip], offsets[skip + count]
        checked = _CHECKED_HEADER.pack(
            BATCH_MAGIC,
            BATCH_VERSION,
            FLAG_SLICE,
            count,
            header.ledger_id,
            first_entry_id,
            min(header.lac, last_entry_id),
            header.length_before + start,
            stop - start,
        )
        numbers = (*lengths[skip : skip + count], *self.digests[skip : skip + count])
        body = (_u32s(2 * count).pack(*numbers), self.payload[start:stop])
        return _assemble(checked, body, None)

    def describe(self) -> str:
        """Return the name of the batch for messages."""
        header = self.header
        return f"ledger {header.ledger_id} entries {header.first_entry_id}..{header.last_entry_id}"


def build_batch(
    ledger_id: LedgerId,
    first_entry_id: EntryId,
    lac: EntryId,
    length_before: int,
    payloads: Sequence[bytes],
    seed: int,
    mac_key: bytes | None = None,
) -> bytearray:
    """Return the batch of `payloads`, with digests, CRC and, given a key, the MAC. The result must
    not be changed.
    """
    count = len(payloads)
    assert 1 <= count <= BATCH_ENTRIES_MAX
    lengths = list(map(len, payloads))
    checked = _CHECKED_HEADER.pack(
        BATCH_MAGIC,
        BATCH_VERSION,
        0 if mac_key is None else FLAG_KEYED,
        count,
        ledger_id,
        first_entry_id,
        lac,
        length_before,
        sum(lengths),
    )
    digests = entry_digests(payloads, first_entry_id, seed)
    return _assemble(checked, (_u32s(2 * count).pack(*lengths, *digests), *payloads), mac_key)


def entry_digests(payloads: Sequence[Buffer], first_entry_id: EntryId, seed: int) -> list[int]:
    """Return crc32c(payload, (seed + entry id) mod 2^32) of each entry."""
    start = (seed + first_entry_id) % _SEED_MODULUS
    if len(payloads) == 1:
        return [crc32c(payloads[0], start)]
    if start + len(payloads) <= _SEED_MODULUS:
        return list(map(crc32c, payloads, range(start, start + len(payloads))))
    return [crc32c(p, (start + i) % _SEED_MODULUS) for i, p in enumerate(payloads)]


def _assemble(checked: bytes, body: Sequence[Buffer], mac_key: bytes | None) -> bytearray:
    mac = b""
    if mac_key is not None:
        state = hmac.new(mac_key, checked, hashlib.sha256)
        for part in body:
            state.update(part)
        mac = state.digest()
    data = bytearray().join((checked, b"\0\0\0\0", mac, *body))
    crc = crc32c(memoryview(data)[BATCH_HEADER_BYTES:], crc32c(checked))
    _CRC.pack_into(data, _CRC_OFFSET, crc)
    return data


@lru_cache(maxsize=2 * BATCH_ENTRIES_MAX)
def _u32s(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}I")
