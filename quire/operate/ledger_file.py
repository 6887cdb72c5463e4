"""Format of a ledger as one file, for export and import.

Format, little-endian: the 8 bytes `QUIRELX1`, then blocks:

| offset | size | field |
|---|---|---|
| 0 | 1 | kind: H (header, first), E (entries), T (trailer, last) |
| 1 | 4 | body bytes |
| 5 | 4 | CRC32C of kind, body bytes and body |
| 9 | | body |

H: a msgpack map (`FileHeader`). E: first entry id u64, count u32, count lengths u32, payloads back
to back. T: entries u64, payload bytes u64, SHA-256 of everything before the trailer's block.

Payloads are stored, not batches: a batch is bound to its ledger's id and creation token, and an
import creates another ledger. Payloads of an encrypted ledger are ciphertext, and the header has
the token that their key was derived from.

Invariants: entry ids go up by one from 0 without gaps; a file without its trailer is truncated.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import accumulate, pairwise
from typing import BinaryIO, Final, TypedDict

import msgpack
from crc32c import crc32c

from quire.errors import DamagedFileError

FILE_MAGIC: Final = b"QUIRELX1"
BLOCK_BYTES_MAX: Final = 64 * 1024 * 1024
HEADER_BYTES_MAX: Final = 2 * 1024 * 1024
HEADER_ITEMS_MAX: Final = 64
"""Maximum number of items of an array in the header, which has no arrays today."""
BLOCK_ENTRIES_MAX: Final = 65_536

_BLOCK = struct.Struct("<cII")
_KIND_AND_SIZE = struct.Struct("<cI")
_ENTRIES = struct.Struct("<QI")
_TRAILER = struct.Struct("<QQ32s")


class InSyncHeader(TypedDict):
    """Fields that in-sync mode adds to a quorum."""

    min_in_sync: int
    replica_lag_time_max_ms: int


class EncryptionHeader(TypedDict):
    """Fields of a ledger with encrypted payloads: the file holds ciphertext."""

    cipher: str
    key_id: str
    key_token: bytes
    key_check: bytes


@dataclass(frozen=True, slots=True)
class FileHeader:
    """Facts about the exported ledger."""

    ledger_id: int
    state: str
    ensemble_size: int
    write_quorum: int
    ack_quorum: int
    digest: str
    custom_metadata: dict[str, str | bytes]
    in_sync: InSyncHeader | None
    """Fields of a ledger in in-sync mode."""
    encryption: EncryptionHeader | None
    """Fields of an encrypted ledger."""


class LedgerFileWriter:
    """Writes one ledger to a stream: the header at once, blocks as they come, `end` last."""

    def __init__(self, stream: BinaryIO, header: FileHeader) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self.entry_count = 0
        self.payload_bytes = 0
        self._write(FILE_MAGIC)
        self._block(b"H", msgpack.packb(asdict(header)))

    def add(self, payloads: Sequence[bytes]) -> None:
        """Write the next entries; at least one."""
        assert 0 < len(payloads) <= BLOCK_ENTRIES_MAX
        count = len(payloads)
        lengths = struct.pack(f"<{count}I", *map(len, payloads))
        head = _ENTRIES.pack(self.entry_count, count) + lengths
        self._block(b"E", head + b"".join(payloads))
        self.entry_count += count
        self.payload_bytes += sum(map(len, payloads))

    def end(self) -> None:
        """Write the trailer."""
        digest = self._hash.digest()
        self._block(b"T", _TRAILER.pack(self.entry_count, self.payload_bytes, digest))
        self._stream.flush()

    def _block(self, kind: bytes, body: bytes) -> None:
        crc = crc32c(body, crc32c(_KIND_AND_SIZE.pack(kind, len(body))))
        self._write(_BLOCK.pack(kind, len(body), crc))
        self._write(body)

    def _write(self, data: bytes) -> None:
        self._hash.update(data)
        self._stream.write(data)


class LedgerFileReader:
    """Reads what `LedgerFileWriter` wrote. Raises DamagedFileError at the first error."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()
        self.entry_count = 0
        self.payload_bytes = 0
        if self._read(len(FILE_MAGIC)) != FILE_MAGIC:
            raise DamagedFileError(
                "this file was not written by `quire ledger export`",
                try_next="quire ledger append (appends the lines of any file)",
            )
        kind, body, _ = self._block()
        if kind != b"H":
            raise DamagedFileError("the file has no header")
        self.header = _parse_header(body)

    def blocks(self) -> Iterator[list[bytes]]:
        """Yield the entries' payloads, block by block, and check the trailer at the end."""
        while True:
            kind, body, hash_before = self._block()
            if kind == b"T":
                self._check_trailer(body, hash_before)
                return
            if kind != b"E":
                raise DamagedFileError(f"the file has a block of unknown kind {kind!r}")
            yield self._entries(body)

    def _entries(self, body: bytes) -> list[bytes]:
        if len(body) < _ENTRIES.size:
            raise DamagedFileError("a block of entries is too short")
        first, count = _ENTRIES.unpack_from(body)
        start = _ENTRIES.size + 4 * count
        if first != self.entry_count or start > len(body):
            raise DamagedFileError(
                f"entry {self.entry_count} is expected next, but the file has entry {first}"
            )
        lengths = struct.unpack_from(f"<{count}I", body, _ENTRIES.size)
        ends = list(accumulate(lengths, initial=start))
        if ends[-1] != len(body):
            raise DamagedFileError(
                f"the lengths in the block at entry {first} do not match its size"
            )
        self.entry_count += count
        self.payload_bytes += len(body) - start
        return [body[a:b] for a, b in pairwise(ends)]

    def _check_trailer(self, body: bytes, hash_before: bytes) -> None:
        expected = (self.entry_count, self.payload_bytes, hash_before)
        if len(body) != _TRAILER.size or _TRAILER.unpack(body) != expected:
            raise DamagedFileError("the trailer does not match the rest of the file")

    def _block(self) -> tuple[bytes, bytes, bytes]:
        hash_before = self._hash.digest()
        head = self._read(_BLOCK.size)
        kind, size, crc = _BLOCK.unpack(head)
        if size > BLOCK_BYTES_MAX + HEADER_BYTES_MAX:
            raise DamagedFileError(f"a block has {size} bytes, which is over the limit")
        body = self._read(size)
        if crc32c(body, crc32c(_KIND_AND_SIZE.pack(kind, size))) != crc:
            raise DamagedFileError(f"the block at entry {self.entry_count} fails its checksum")
        return kind, body, hash_before

    def _read(self, size: int) -> bytes:
        parts = []
        missing = size
        while missing and (part := self._stream.read(missing)):
            parts.append(part)
            missing -= len(part)
        if missing:
            raise DamagedFileError(f"the file is truncated after entry {self.entry_count - 1}")
        data = b"".join(parts)
        self._hash.update(data)
        return data


def _parse_header(body: bytes) -> FileHeader:
    try:
        fields = msgpack.unpackb(body, max_array_len=HEADER_ITEMS_MAX)
        header = FileHeader(**fields)
    except (ValueError, TypeError) as error:
        raise DamagedFileError(f"the header cannot be read: {error}") from error
    numbers: tuple[object, ...] = (
        header.ledger_id,
        header.ensemble_size,
        header.write_quorum,
        header.ack_quorum,
    )
    texts = (header.state, header.digest)
    if header.in_sync is not None:
        try:
            numbers += (header.in_sync["min_in_sync"], header.in_sync["replica_lag_time_max_ms"])
        except (TypeError, KeyError) as error:
            raise DamagedFileError(
                "the header's in_sync lacks min_in_sync or replica_lag_time_max_ms"
            ) from error
    _check_encryption(header.encryption)
    if not (
        all(isinstance(number, int) for number in numbers)
        and all(isinstance(text, str) for text in texts)
        and isinstance(header.custom_metadata, dict)
    ):
        raise DamagedFileError("the header's fields have the wrong types")
    return header


def _check_encryption(given: EncryptionHeader | None) -> None:
    if given is None:
        return
    try:
        texts, tokens = (given["cipher"], given["key_id"]), (given["key_token"], given["key_check"])
    except (TypeError, KeyError) as error:
        raise DamagedFileError("the header's encryption lacks a field") from error
    if not (
        all(isinstance(text, str) for text in texts)
        and all(isinstance(token, bytes) for token in tokens)
    ):
        raise DamagedFileError("the fields of the header's encryption have the wrong types")
