"""Prefetch for sequential readers: a long range in order, with several requests under way.

Leaves each request to `range_reader.py`.

Requests are sized by the sizes of earlier entries, and end where stripes end if that is near.
Batches never cross a stripe, so complete batches come back, each checked by one CRC.

Invariants: entries are returned in order, each once; at most `REQUESTS_MAX` answers are held;
nothing is left running when the iterator is closed.

Source: protocol rule 8.3.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator
from typing import Final

from ledger_client.batches import EntryBatch
from ledger_client.config import ClientConfig
from ledger_client.protocol.quorum import stripe_end
from ledger_client.reading.range_reader import RangeEntries, RangeReader
from metadata.cancelling import cancel_and_wait
from metadata.ids import EntryId
from metadata.ledgers.ledger_metadata import QuorumSpec

REQUESTS_MAX: Final = 16


class ReadPlan:
    """Decides where each request ends, from the sizes seen so far. Pure."""

    def __init__(
        self, quorum: QuorumSpec, config: ClientConfig, entry_bytes: float | None = None
    ) -> None:
        """Create a plan; `entry_bytes` is the average size of entries read before, or 0."""
        self._quorum = quorum
        self._ahead_count = config.read_ahead_count
        self._target_bytes = config.read_bytes_max // 2
        self._entry_bytes = entry_bytes
        self._request_bytes = 0.0 if entry_bytes is None else float(self._target_bytes)

    def learn(self, result: RangeEntries) -> None:
        """Record the sizes in an answer."""
        count = sum(len(batch) for batch in result.batches)
        size = sum(batch.payload_bytes for batch in result.batches)
        if count:
            mean = max(1.0, size / count)
            known = self._entry_bytes
            self._entry_bytes = mean if known is None else (3 * known + mean) / 4
            self._request_bytes = size

    @property
    def request_count(self) -> int:
        """Number of requests to have under way: one until a size is known, more if answers are
        small.
        """
        if self._entry_bytes is None:
            return 1
        wanted = self._ahead_count * self._target_bytes / max(1.0, self._request_bytes)
        return max(self._ahead_count, min(REQUESTS_MAX, int(wanted)))

    def end(self, first: EntryId, last: EntryId) -> EntryId:
        """Return the last entry of a request that starts at `first`; at most `last`."""
        stripe_last = stripe_end(self._quorum, first)
        if self._entry_bytes is None:
            return min(stripe_last, last)
        furthest = EntryId(first + max(0, int(self._target_bytes / self._entry_bytes) - 1))
        if furthest < stripe_last:
            return min(furthest, last)
        stripe = self._quorum.stripe_entries
        whole = EntryId(stripe_last + (furthest - stripe_last) // stripe * stripe)
        return min(whole, last)


async def read_ahead(
    ranges: RangeReader, plan: ReadPlan, first: EntryId, last: EntryId, timeout_s: float
) -> AsyncGenerator[EntryBatch, None]:
    """Yield the batches of first..last in order; `timeout_s` limits each request."""
    loop = asyncio.get_running_loop()
    under_way: deque[tuple[EntryId, asyncio.Task[RangeEntries]]] = deque()
    next_entry_id = first
    try:
        while True:
            while next_entry_id <= last and len(under_way) < plan.request_count:
                end = ranges.range_end(next_entry_id, plan.end(next_entry_id, last))
                read = ranges.read(next_entry_id, end, timeout_s)
                under_way.append((end, loop.create_task(read)))
                next_entry_id = EntryId(end + 1)
            if not under_way:
                return
            end, task = under_way.popleft()
            try:
                result = await task
            finally:
                task.cancel()
            plan.learn(result)
            # The answer reached the size limit, or the replica had no more.
            is_short = result.next_entry_id <= end
            if is_short and under_way:
                rest = ranges.read(result.next_entry_id, end, timeout_s)
                under_way.appendleft((end, loop.create_task(rest)))
            elif is_short:
                next_entry_id = result.next_entry_id
            for batch in result.batches:
                yield batch
    finally:
        await cancel_and_wait(*[task for _end, task in under_way])
