"""Contents of every entry of a campaign, computed from seed, ledger and entry number.

Leaves appending them to `writer`, and finding them to `checker`.

Format: 28 bytes little-endian (seed u64, ledger id u64, entry id u64, payload bytes u32), then
bytes of a block that the seed determines. One entry in 256 is empty, a few are large, most are
small.
"""

import hashlib
import random
import struct
from collections.abc import Sequence
from typing import Final

HEADER: Final = struct.Struct("<QQQI")
BLOCK_BYTES: Final = 1 << 20
LARGE_BYTES_MAX: Final = 64 * 1024
MEDIUM_BYTES_MAX: Final = 4 * 1024
SMALL_BYTES_MAX: Final = 256
_MASK: Final = (1 << 64) - 1


class Payloads:
    """Payloads of one campaign; the same arguments always give the same bytes."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        block = random.Random(seed).randbytes(BLOCK_BYTES)
        self._block = block + block[:LARGE_BYTES_MAX]

    def make(self, ledger_id: int, entry_id: int) -> bytes:
        """Return the payload of one entry."""
        draw = (ledger_id * 0x9E3779B97F4A7C15 + entry_id * 0xBF58476D1CE4E5B9 + self._seed) & _MASK
        draw ^= draw >> 29
        draw = draw * 0x94D049BB133111EB & _MASK
        draw ^= draw >> 32
        kind, place, size = draw & 0xFF, (draw >> 8) % BLOCK_BYTES, draw >> 28
        if kind == 0:
            return b""
        if kind == 1:
            size %= LARGE_BYTES_MAX
        elif kind < 8:
            size %= MEDIUM_BYTES_MAX
        else:
            size %= SMALL_BYTES_MAX
        header = HEADER.pack(self._seed, ledger_id, entry_id, HEADER.size + size)
        return header + self._block[place : place + size]

    def make_range(self, ledger_id: int, first: int, last: int) -> list[bytes]:
        """Return the payloads of entries first..last."""
        return [self.make(ledger_id, entry_id) for entry_id in range(first, last + 1)]


def digest_of(lengths: Sequence[int], data: bytes | bytearray | memoryview) -> str:
    """Return the digest of consecutive entries, over their lengths and concatenated bytes.

    It differs from the product's digest, so that both are never wrong in the same way.
    """
    digest = hashlib.sha256(struct.pack(f"<{len(lengths)}I", *lengths))
    digest.update(data)
    return digest.hexdigest()


def digest_of_payloads(payloads: Sequence[bytes]) -> str:
    """Return the digest of these entries."""
    return digest_of([len(payload) for payload in payloads], b"".join(payloads))
