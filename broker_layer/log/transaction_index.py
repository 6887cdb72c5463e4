"""Knows the transactions of a partition: which are open, how far readers of committed records may
go, and which ones they must leave out.

Leaves who may write in a transaction to `producer_state` and the coordinator, and the bytes to
`state_entry`.

Invariants: a producer has at most one open transaction; transactions are opened and ended in the
order of the log, and what was aborted is kept in the order of the markers. The last stable offset
is the least of: the high watermark; the first offset of each open transaction; the first offset of
each whose marker lies at or above the high watermark. So it moves on only with markers that are
confirmed. At most TRANSACTIONS_MAX are open or aborted and within the log: then no further
transaction is opened until retention makes room; markers are always taken.

Source: KIP-98, "Last stable offset"; topics design, "The mapping".
"""

from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final

TRANSACTIONS_MAX: Final = 100_000


@dataclass(frozen=True, slots=True)
class AbortedTransaction:
    """A transaction whose records count for nothing."""

    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker."""
    last_stable_offset: int
    """Behind the marker, as if all were confirmed: what ends later begins at or above this."""


class TransactionIndex:
    """The transactions of one partition, in all that was admitted."""

    def __init__(self) -> None:
        self._open: OrderedDict[int, int] = OrderedDict()  # producer id -> first offset, rising
        self._aborted: list[AbortedTransaction] = []
        # (first offset, marker's offset) of ended ones whose marker was not seen confirmed; without
        # those that another outlasts and undercuts, so both numbers rise.
        self._unconfirmed: deque[tuple[int, int]] = deque()

    @property
    def producers(self) -> Collection[int]:
        """A live view of the producers that have an open transaction."""
        return self._open.keys()

    @property
    def has_room(self) -> bool:
        """Whether one more transaction may be opened."""
        return len(self._open) + len(self._aborted) < TRANSACTIONS_MAX

    @property
    def aborted_count(self) -> int:
        """Aborted transactions within the log."""
        return len(self._aborted)

    def first_offset_of(self, producer_id: int) -> int | None:
        """Return where a producer's open transaction begins; None if it has none."""
        return self._open.get(producer_id)

    def begin(self, producer_id: int, first_offset: int) -> None:
        """Open a transaction; one that is open already goes on."""
        self._open.setdefault(producer_id, first_offset)

    def end(self, producer_id: int, marker_offset: int, *, is_aborted: bool) -> None:
        """End a producer's transaction; without an open one, a marker means nothing."""
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
        """Return the offset before which every transaction's outcome is known and confirmed.

        The high watermark never goes back from one call to the next.
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
        """Return the aborted transactions that may have records in a range of offsets, which ends
        before `end_offset`, in the order of their markers; only confirmed markers count.
        """
        found: list[AbortedTransaction] = []
        start = bisect_left(self._aborted, first_offset, key=_last_offset)
        for position in range(start, len(self._aborted)):
            aborted = self._aborted[position]
            if aborted.last_offset >= high_watermark:
                break
            if aborted.first_offset < end_offset:
                found.append(aborted)
            if aborted.last_stable_offset >= end_offset:
                break
        return found

    def drop_below(self, log_start_offset: int) -> None:
        """Forget aborted transactions that lie below the log's start as a whole."""
        del self._aborted[: bisect_left(self._aborted, log_start_offset, key=_last_offset)]

    def open_snapshot(self) -> tuple[tuple[int, int], ...]:
        """Return (producer id, first offset) of the open transactions, by their first offsets."""
        return tuple(self._open.items())

    def aborted_snapshot(self) -> tuple[AbortedTransaction, ...]:
        """Return the aborted transactions, by their markers."""
        return tuple(self._aborted)

    def load(
        self, opened: Iterable[tuple[int, int]], aborted: Iterable[AbortedTransaction]
    ) -> None:
        """Hold what the snapshots returned, and nothing else; everything before is confirmed."""
        self._open.clear()  # the same object stays, for `producers` is a view of it
        self._open.update(opened)
        self._aborted = list(aborted)
        self._unconfirmed.clear()


def _last_offset(aborted: AbortedTransaction) -> int:
    return aborted.last_offset
