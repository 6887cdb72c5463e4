"""Open and aborted transactions of a partition, and its last stable offset.

Leaves the check of producers to `producer_state` and the coordinator, and the stored format to
`state_entry`.

Invariants: a producer has at most one open transaction; transactions are opened and ended in the
order of the log; aborted transactions are in the order of their markers. The last stable offset is
the least of the high watermark, the first offset of each open transaction, and the first offset of
each transaction whose marker is at or above the high watermark. So it advances only with confirmed
markers. Open transactions are limited by the number of producers. Of the aborted ones about
ABORTED_MAX are kept here; older ones are in state entries of the log (`older_aborted`).

Source: KIP-98, "Last stable offset"; topics design, "The mapping".
"""

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

ABORTED_MAX: Final = 50_000
"""Number of aborted transactions at which a state entry is due, after which the older half of them
is dropped here."""


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction whose records must be ignored."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Offset of the marker."""
    last_stable_offset: int
    """Last stable offset after the marker, as if all entries were confirmed: transactions that end
    later begin at or above it."""


class TransactionIndex:
    """The transactions of one partition in all admitted batches."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, int] = OrderedDict()  # producer id -> first offset, rising
        self._aborted: list[AbortedTransaction] = []
        # (first offset, marker's offset) of ended transactions whose marker is not known to be
        # confirmed. One that begins after and ends before another is left out: both numbers rise.
        self._unconfirmed: deque[tuple[int, int]] = deque()

    @property
    def producers(self) -> Collection[int]:
        """Live view of the producers that have an open transaction."""
        return self._open.keys()

    @property
    def aborted_count(self) -> int:
        """Number of aborted transactions in the log."""
        return len(self._aborted)

    def first_offset_of(self, producer_id: int) -> int | None:
        """Return the first offset of a producer's open transaction; None if it has none."""
        return self._open.get(producer_id)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Open a transaction; if the producer has an open one, it continues."""
        self._open.setdefault(producer_id, first_offset)

    def end(self, producer_id: int, marker_offset: int, *, is_aborted: bool) -> None:
        """End a producer's transaction; without an open one, the marker is ignored."""
        first_offset = self._open.pop(producer_id, None)
        if first_offset is None:
            return
        while self._unconfirmed and self._unconfirmed[-1][0] >= first_offset:
            self._unconfirmed.pop()
        self._unconfirmed.append((first_offset, marker_offset))
        if is_aborted:
            stable = next(iter(self._open.values()), marker_offset + 1)
            self._aborted.append(
                AbortedTransaction(producer_id, first_offset, marker_offset, stable)
            )

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the offset below which every transaction's outcome is known and confirmed.

        `high_watermark` must not decrease from one call to the next.
        """
        while self._unconfirmed and self._unconfirmed[0][1] < high_watermark:
            self._unconfirmed.popleft()
        stable = high_watermark
        if self._unconfirmed:
            stable = min(stable, self._unconfirmed[0][0])
        return min(stable, next(iter(self._open.values()), stable))

    def aborted_in(
        self, first_offset: int, end_offset: int, high_watermark: int
    ) -> list[AbortedTransaction]:
        """Return aborted transactions that may have records in first_offset..end_offset-1.

        They are in the order of their markers; only confirmed markers count.
        """
        transactions: list[AbortedTransaction] = []
        start = bisect_left(self._aborted, first_offset, key=_last_offset)
        for position in range(start, len(self._aborted)):
            aborted = self._aborted[position]
            if aborted.last_offset >= high_watermark:
                break
            if aborted.first_offset < end_offset:
                transactions.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                break
        return transactions

    def drop_below(self, log_start_offset: int) -> None:
        """Drop aborted transactions that end below the log's start."""
        del self._aborted[: bisect_left(self._aborted, log_start_offset, key=_last_offset)]

    def drop_older_half(self) -> int:
        """Drop the older half of the aborted transactions; return the first marker that is left."""
        del self._aborted[: len(self._aborted) // 2]
        return self._aborted[0].last_offset

    def open_snapshot(self) -> tuple[tuple[int, int], ...]:
        """Return (producer id, first offset) of the open transactions, by their first offsets."""
        return tuple(self._open.items())

    def aborted_snapshot(self) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions, by their markers."""
        return tuple(self._aborted)

    def load(
        self, opened: Iterable[tuple[int, int]], aborted: Iterable[AbortedTransaction]
    ) -> None:
        """Replace all transactions with those of the snapshots; everything before is confirmed."""
        self._open.clear()  # keep the same object: `producers` is a view of it
        self._open.update(opened)
        self._aborted = list(aborted)
        self._unconfirmed.clear()


def _last_offset(aborted: AbortedTransaction) -> int:
    return aborted.last_offset
