"""Compression and decompression of the records of a batch, with Kafka's four codecs.

Leaves the layout of the bytes to `record_batch.records`.

Format: gzip (RFC 1952), LZ4 frames, Zstandard frames. Snappy is either one raw block, or Xerial's
stream: 16 bytes (8 of magic, two versions), then blocks, each preceded by its big-endian length.

Invariants: at most `bytes_max` bytes are allocated for decompressed records, whatever size the
compressed bytes state, and they bound the time too; damage raises RecordBatchError. LZ4 is written
with independent blocks, because the Java client refuses others.

Source: KIP-31, KIP-57, KIP-110; the LZ4 frame format.
"""

import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import DecompressionTooLargeError, RecordBatchError
from broker_layer.kafka.record_batch.header import Compression

DECOMPRESSED_BYTES_AT_FIRST: Final = 64 * 1024
EXPECTED_RATIO: Final = 4
"""The first buffer is this many times the size of the compressed bytes; each further buffer is this
many times larger than the one before."""

XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
XERIAL_HEADER: Final = XERIAL_MAGIC + struct.pack(">ii", 1, 1)
XERIAL_BLOCK_BYTES: Final = 32 * 1024
BLOCK_BYTES_MIN: Final = 1024
"""Each block of Xerial's stream counts as so many decompressed bytes at least, because an empty one
takes its time too. Producers write blocks of 32 KiB."""
LZ4_HEADER: Final = bytes.fromhex("04224d18 60 40 82")
"""Magic, flag of independent blocks, maximum block size of 64 KiB, checksum of these two bytes."""
LZ4_BLOCK_BYTES: Final = 64 * 1024
LZ4_END: Final = bytes(4)
LZ4_STORED_FLAG: Final = 0x8000_0000

_XERIAL_LENGTH = struct.Struct(">i")
_LZ4_LENGTH = struct.Struct("<I")
_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS
_OUTPUT_IS_FULL: Final = "failed to write whole buffer"
"""cramjam's error text for a stream that does not fit in its buffer; a unit test checks it."""

Unpack = Callable[[memoryview, bytearray], int]


def compress(kind: Compression, data: bytes) -> bytes:
    """Compress the records of a batch."""
    match kind:
        case Compression.NONE:
            return data
        case Compression.GZIP:
            packer = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
            return packer.compress(data) + packer.flush()
        case Compression.SNAPPY:
            return XERIAL_HEADER + b"".join(map(_snappy_block, _cut(data, XERIAL_BLOCK_BYTES)))
        case Compression.LZ4:
            return LZ4_HEADER + b"".join(map(_lz4_block, _cut(data, LZ4_BLOCK_BYTES))) + LZ4_END
        case Compression.ZSTD:
            return bytes(cramjam.zstd.compress(data))


def decompress(kind: Compression, data: memoryview, bytes_max: int) -> memoryview:
    """Decompress the records of a batch into at most `bytes_max` bytes.

    Raises DecompressionTooLargeError if there are more, RecordBatchError if they are damaged.
    """
    match kind:
        case Compression.NONE:
            if len(data) > bytes_max:
                raise DecompressionTooLargeError(bytes_max)
            return data
        case Compression.GZIP:
            return memoryview(_gunzip(data, bytes_max))
        case Compression.SNAPPY:
            return memoryview(_unsnap(data, bytes_max))
        case Compression.LZ4:
            return _grow(cramjam.lz4.decompress_into, data, bytes_max)
        case Compression.ZSTD:
            return _grow(cramjam.zstd.decompress_into, data, bytes_max)


def _cut(data: bytes, size: int) -> list[bytes]:
    return [data[start : start + size] for start in range(0, len(data), size)]


def _snappy_block(block: bytes) -> bytes:
    packed = bytes(cramjam.snappy.compress_raw(block))
    return _XERIAL_LENGTH.pack(len(packed)) + packed


def _lz4_block(block: bytes) -> bytes:
    packed = bytes(cramjam.lz4.compress_block(block, store_size=False))
    if len(packed) >= len(block):
        return _LZ4_LENGTH.pack(len(block) | LZ4_STORED_FLAG) + block
    return _LZ4_LENGTH.pack(len(packed)) + packed


def _damaged(kind: Compression, error: Exception | str) -> RecordBatchError:
    return RecordBatchError(
        ErrorCode.CORRUPT_MESSAGE, f"damaged {kind.name.lower()} records: {error}"
    )


def _grow(unpack: Unpack, data: memoryview, bytes_max: int) -> memoryview:
    size = max(DECOMPRESSED_BYTES_AT_FIRST, len(data) * EXPECTED_RATIO)
    while True:
        size = min(size, bytes_max)
        output = bytearray(size)
        try:
            return memoryview(output)[: unpack(data, output)]
        except cramjam.DecompressionError as error:
            if _OUTPUT_IS_FULL not in str(error):
                raise RecordBatchError(
                    ErrorCode.CORRUPT_MESSAGE, f"damaged records: {error}"
                ) from error
        if size == bytes_max:
            raise DecompressionTooLargeError(bytes_max)
        size *= EXPECTED_RATIO


def _gunzip(data: memoryview, bytes_max: int) -> bytes:
    unpacker = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
    try:
        output = unpacker.decompress(data, bytes_max + 1)  # 0 would mean no limit
    except zlib.error as error:
        raise _damaged(Compression.GZIP, error) from error
    if len(output) > bytes_max:
        raise DecompressionTooLargeError(bytes_max)
    if not unpacker.eof or unpacker.unused_data:
        raise _damaged(Compression.GZIP, "they must be exactly one complete stream")
    return output


def _unsnap(data: memoryview, bytes_max: int) -> bytes:
    if bytes(data[: len(XERIAL_MAGIC)]) != XERIAL_MAGIC:
        return _unsnap_block(data, bytes_max)
    output: list[bytes] = []
    room = bytes_max
    start = len(XERIAL_HEADER)
    if len(data) < start:
        raise _damaged(Compression.SNAPPY, "the stream is shorter than its header")
    while start < len(data):
        if len(data) - start < _XERIAL_LENGTH.size:
            raise _damaged(Compression.SNAPPY, "a block ends within its length")
        (length,) = _XERIAL_LENGTH.unpack_from(data, start)
        start += _XERIAL_LENGTH.size
        if not 0 < length <= len(data) - start:
            raise _damaged(Compression.SNAPPY, f"a block has an invalid length of {length} B")
        block = _unsnap_block(data[start : start + length], room)
        output.append(block)
        room -= max(len(block), BLOCK_BYTES_MIN)
        if room < 0:
            raise DecompressionTooLargeError(bytes_max)
        start += length
    return b"".join(output)


def _unsnap_block(block: memoryview, bytes_max: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > bytes_max:
            raise DecompressionTooLargeError(bytes_max)
        output = bytearray(size)
        if cramjam.snappy.decompress_raw_into(block, output) != size:
            raise _damaged(Compression.SNAPPY, "a block is shorter than its stated size")
    except cramjam.DecompressionError as error:
        raise _damaged(Compression.SNAPPY, error) from error
    return bytes(output)
