"""Compact list of one segment's adds records, iterated in slices with pauses.

Leaves reading the list from a file to `bookie.log.listing`.

Invariant: a slice is short, and the event loop runs other callbacks between two slices: a segment
may hold a million records.
Source: storage design, "One log" and "Cleaning".
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator
from typing import Final

from bookie.log import records
from bookie.log.records import FOOTER_RUN_BYTES, FooterRun
from bookie.wire.batch import Buffer

SLICE_RUNS: Final = 8_192
SAMPLED_ONE_IN: Final = 64
"""The places to cut a list come from a sample of one record in SAMPLED_ONE_IN."""


class ListedRuns:
    """The adds records of a segment, packed as in a footer: 28 bytes each."""

    def __init__(self, packed: Buffer) -> None:
        self._packed = memoryview(packed)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._packed) // FOOTER_RUN_BYTES

    async def slices(self, *, newest_first: bool = False) -> AsyncIterator[list[FooterRun]]:
        """Yield the records slice by slice, in the order of the file or in reverse order."""
        starts = range(0, len(self), SLICE_RUNS)
        for start in reversed(starts) if newest_first else starts:
            end = (start + SLICE_RUNS) * FOOTER_RUN_BYTES
            found = records.decode_runs(self._packed[start * FOOTER_RUN_BYTES : end])
            yield found[::-1] if newest_first else found
            await asyncio.sleep(0)

    async def parts(self, records_max: int) -> list["ListedRuns"]:
        """Split the list into lists of about `records_max` records, by ledger and first entry id,
        ascending. Every record is in exactly one of them.
        """
        if len(self) <= records_max:
            return [self]
        sample: list[tuple[int, int]] = []
        async for found in self.slices():
            sample += [(run.ledger_id, run.first_entry_id) for run in found[::SAMPLED_ONE_IN]]
        sample.sort()
        step = max(1, records_max // SAMPLED_ONE_IN)
        bounds = sample[step::step]
        parts = [bytearray() for _ in range(len(bounds) + 1)]
        place = 0
        async for found in self.slices():
            for _, ledger_id, first, _, _ in found:
                part = parts[bisect_right(bounds, (ledger_id, first))]
                part += self._packed[place : place + FOOTER_RUN_BYTES]
                place += FOOTER_RUN_BYTES
        return [ListedRuns(part) for part in parts]

    async def mean_bytes(self) -> int:
        """Return the mean size of the segment's runs, with adjacent records of one ledger
        joined.
        """
        count = total = 0
        next_ledger_id = next_entry_id = next_offset = -1
        async for found in self.slices():
            for entry_count, ledger_id, first, offset, size in found:
                if first != next_entry_id or offset != next_offset or ledger_id != next_ledger_id:
                    count += 1
                total += size
                next_ledger_id = ledger_id
                next_entry_id, next_offset = first + entry_count, offset + size
        return total // count if count else 0

    async def spans(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and the highest entry id of each ledger in the segment."""
        spans: dict[int, tuple[int, int]] = {}
        async for found in self.slices():
            for entry_count, ledger_id, first, _, _ in found:
                last = first + entry_count - 1
                low, high = spans.get(ledger_id, (first, last))
                spans[ledger_id] = (
                    first if first < low else low,
                    last if last > high else high,
                )
        return spans
