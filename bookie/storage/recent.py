"""Cache of the batches stored last, so that tailing readers do not read the disk.

Leaves older batches to `bookie.storage.reading`.

A small batch is kept as a copy of its bytes, and becomes a view again when it is read. A view has
six objects that Python's garbage collector scans; with tens of thousands of views, a scan takes
tens of milliseconds. For the same reason a ledger's only batch is kept in a tuple. A large batch is
kept without a copy.

Invariants: only durable batches are kept; the batches of one ledger ascend; when the limit in bytes
is exceeded, the oldest batches are dropped.
Source: storage design, "Index".
"""

from bisect import bisect_left
from collections import deque
from typing import Final

from bookie.wire.batch import BatchView

OVERHEAD_BYTES: Final = 1000
"""Memory of a kept batch besides its bytes."""
COPIED_BYTES_MAX: Final = 4096
"""Maximum size of a batch that is copied."""
_COMPACT_AT: Final = 64


_Kept = bytes | BatchView
_OnlyBatch = tuple[int, _Kept]
"""Last entry id of a batch, and the batch."""


class _LedgerBatches:
    __slots__ = ("batches", "lasts", "start")

    def __init__(self, only: _OnlyBatch) -> None:
        self.lasts = [only[0]]
        self.batches: list[_Kept | None] = [only[1]]
        self.start = 0


class RecentEntries:
    """Cache of recent batches, for all ledgers."""

    def __init__(self, bytes_max: int) -> None:
        self.size = 0
        self._bytes_max = bytes_max
        self._ledgers: dict[int, _LedgerBatches | _OnlyBatch] = {}
        self._order: deque[int] = deque()
        self._costs: deque[int] = deque()

    def put(self, batch: BatchView) -> None:
        """Keep a batch that was just stored. A batch that is not beyond its ledger's last one is
        not kept.
        """
        header = batch.header
        ledger_id, last = header.ledger_id, header.first_entry_id + header.count - 1
        kept = self._ledgers.get(ledger_id)
        if isinstance(kept, tuple):
            kept = self._ledgers[ledger_id] = _LedgerBatches(kept)
        if kept is not None and kept.lasts[-1] >= header.first_entry_id:
            return
        size = len(batch.data)
        stored = bytes(batch.data) if size <= COPIED_BYTES_MAX else batch
        if kept is None:
            self._ledgers[ledger_id] = (last, stored)
        else:
            kept.lasts.append(last)
            kept.batches.append(stored)
        cost = size + OVERHEAD_BYTES
        self._order.append(ledger_id)
        self._costs.append(cost)
        self.size += cost
        while self.size > self._bytes_max:
            self._evict()

    def find(
        self, ledger_id: int, first: int, last: int, bytes_max: int, batches_max: int
    ) -> list[BatchView]:
        """Return the batches from entry `first` on without a gap, up to `last`, about `bytes_max`
        or `batches_max` batches; an empty list when `first` is not kept.
        """
        kept = self._ledgers.get(ledger_id)
        batches: list[BatchView] = []
        if kept is None:
            return batches
        if isinstance(kept, tuple):
            kept = _LedgerBatches(kept)
        place = bisect_left(kept.lasts, first, kept.start)
        stop = min(len(kept.lasts), place + batches_max)
        while first <= last and bytes_max > 0 and place < stop:
            stored = kept.batches[place]
            batch = BatchView(stored) if isinstance(stored, bytes) else stored
            if batch is None or batch.header.first_entry_id > first:
                break
            batches.append(batch)
            bytes_max -= len(batch.data)
            first = kept.lasts[place] + 1
            place += 1
        return batches

    def drop(self, ledger_id: int) -> None:
        """Drop a ledger's batches. Their bytes count until eviction reaches them."""
        self._ledgers.pop(ledger_id, None)

    def _evict(self) -> None:
        ledger_id = self._order.popleft()
        self.size -= self._costs.popleft()
        kept = self._ledgers.get(ledger_id)
        if kept is None:
            return
        if isinstance(kept, tuple):
            del self._ledgers[ledger_id]
            return
        kept.start += 1
        if kept.start >= len(kept.lasts):
            del self._ledgers[ledger_id]
        elif kept.start >= _COMPACT_AT and kept.start * 2 >= len(kept.lasts):
            del kept.lasts[: kept.start]
            del kept.batches[: kept.start]
            kept.start = 0
        else:
            kept.batches[kept.start - 1] = None
