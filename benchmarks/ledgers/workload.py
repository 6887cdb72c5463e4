"""Workloads of the append benchmarks, and the wire size of their entries.

Leaves sending them to `benchmarks.ledgers.raw_client` and `benchmarks.ledgers.append_load`.

Invariant: raw sends, batch for batch, as many bytes as the product at its usual stripe of 1,024
entries per batch.
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
"""Minimum number of entries in a 1 MiB batch of 1 KiB entries; stripes of 1,024 limit larger
batches."""
POOL_BYTES: Final = 4 * 1024 * 1024
POOL_ENTRIES_MAX: Final = 8_192


@dataclass(frozen=True, slots=True)
class Load:
    """A number of entries of one size."""

    entry_bytes: int
    entry_count: int

    @property
    def payload_bytes(self) -> int:
        """Size of all payloads together."""
        return self.entry_bytes * self.entry_count

    @property
    def batch_count(self) -> int:
        """Number of batches that raw sends."""
        return max(1, self.entry_count // BATCH_ENTRIES)

    @property
    def raw_batch_bytes(self) -> int:
        """Size of a raw batch in bytes."""
        return wire_bytes(self.entry_bytes, min(BATCH_ENTRIES, self.entry_count))

    @property
    def raw_entry_count(self) -> int:
        """Number of entries in raw's batches."""
        return self.batch_count * min(BATCH_ENTRIES, self.entry_count)

    def payloads(self) -> Iterator[bytes]:
        """Yield the entries, repeatedly from a pool of random ones."""
        pool_count = max(1, min(POOL_ENTRIES_MAX, POOL_BYTES // self.entry_bytes))
        pool = [os.urandom(self.entry_bytes) for _ in range(pool_count)]
        return islice(cycle(pool), self.entry_count)


def wire_bytes(entry_bytes: int, entry_count: int) -> int:
    """Return the wire size of one batch of `entry_count` entries."""
    return batch_bytes(
        entry_bytes,
        entry_count,
        frame_bytes=FRAME_HEADER_BYTES,
        header_bytes=BATCH_HEADER_BYTES,
    )
