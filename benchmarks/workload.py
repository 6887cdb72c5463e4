"""Says how much the append benchmarks append, and what those entries are on the wire.

Leaves sending them to `benchmarks.raw_client` and `benchmarks.append_load`.

Invariant: raw sends, batch for batch, as many bytes as the product puts on the wire at its usual
stripe of 1,024 entries per batch.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Final

from benchmarks.measures import batch_bytes
from bookie.wire.batch import BATCH_HEADER_BYTES
from bookie.wire.frames import FRAME_HEADER_BYTES

BATCH_ENTRIES: Final = 1_000
"""What a 1 MiB batch of 1 KiB entries holds at least; stripes of 1,024 cut larger ones."""
POOL_BYTES: Final = 4 * 1024 * 1024
POOL_ENTRIES_MAX: Final = 8_192


@dataclass(frozen=True, slots=True)
class Load:
    """So many entries of one size."""

    entry_bytes: int
    entry_count: int

    @property
    def payload_bytes(self) -> int:
        """All payloads together."""
        return self.entry_bytes * self.entry_count

    @property
    def batch_count(self) -> int:
        """Batches that raw sends."""
        return max(1, self.entry_count // BATCH_ENTRIES)

    @property
    def raw_batch_bytes(self) -> int:
        """Bytes of one of them."""
        return wire_bytes(self.entry_bytes, min(BATCH_ENTRIES, self.entry_count))

    @property
    def raw_entry_count(self) -> int:
        """Entries that raw's batches stand for."""
        return self.batch_count * min(BATCH_ENTRIES, self.entry_count)

    def payloads(self) -> Iterator[bytes]:
        """Yield the entries: a pool of random ones, over and over."""
        pool_count = max(1, min(POOL_ENTRIES_MAX, POOL_BYTES // self.entry_bytes))
        pool = [os.urandom(self.entry_bytes) for _ in range(pool_count)]
        return islice(cycle(pool), self.entry_count)


def wire_bytes(entry_bytes: int, entry_count: int) -> int:
    """Return what one batch of so many entries puts on the wire."""
    return batch_bytes(
        entry_bytes,
        entry_count,
        frame_bytes=FRAME_HEADER_BYTES,
        header_bytes=BATCH_HEADER_BYTES,
    )
