"""Index of one ledger: the entry from which to search for an offset or a time.

Leaves the search in the entries to `log_reader`, and the format of points to `state_entry`.

A point is kept for the first batch, for the first one after a state entry, and whenever the batches
since the last point have POINT_BYTES_MIN; so a search reads little more than that.

Invariants: entry ids and offsets of points rise strictly; times never fall. A result is always a
lower bound: the searched record is in that entry or a later one, or not in this ledger. This is
also true while earlier points of the ledger are missing.

Source: topics design, "The mapping" (offset).
"""

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from broker_layer.kafka.record_batch import NO_TIMESTAMP
from metadata.ids import EntryId, LedgerId

POINT_BYTES_MIN: Final = 256 * 1024
FIRST_ENTRY: Final = EntryId(0)


@dataclass(frozen=True, slots=True)
class IndexPoint:
    """One batch of a ledger."""

    entry_id: EntryId
    base_offset: int
    max_timestamp_before_ms: int
    """The greatest time in the entries of the ledger before this one."""


class LedgerIndex:
    """The points of one ledger; about 24 bytes for each."""

    def __init__(self, ledger_id: LedgerId) -> None:
        self.ledger_id = ledger_id
        self.max_timestamp_ms = NO_TIMESTAMP
        """The greatest time in the ledger so far."""
        self.is_whole = True
        """Whether every batch of the ledger was added one by one, so that no points are missing."""
        self._entry_ids = array("q")
        self._offsets = array("q")
        self._times = array("q")
        self._bytes_since = POINT_BYTES_MIN

    def __len__(self) -> int:
        return len(self._entry_ids)

    def add(
        self, entry_id: EntryId, base_offset: int, size_bytes: int, max_timestamp_ms: int
    ) -> None:
        """Add the next batch of the ledger."""
        if self._bytes_since >= POINT_BYTES_MIN:
            self._append(IndexPoint(entry_id, base_offset, self.max_timestamp_ms))
            self._bytes_since = 0
        self._bytes_since += size_bytes
        self.max_timestamp_ms = max(self.max_timestamp_ms, max_timestamp_ms)

    def pass_state_entry(self) -> None:
        """Keep a point for the next batch, so that a replay from here gives equal points."""
        self._bytes_since = POINT_BYTES_MIN

    def add_earlier(self, points: Sequence[IndexPoint]) -> None:
        """Add the points of a state entry of this ledger before the others.

        Call it for the newest state entry first.
        """
        if not points:
            return
        later = self.points_after(points[-1].entry_id)
        if len(later) != len(self):
            return  # the points are known already
        self._entry_ids, self._offsets, self._times = array("q"), array("q"), array("q")
        for point in (*points, *later):
            self._append(point)

    def add_later(self, points: Sequence[IndexPoint], max_timestamp_ms: int) -> None:
        """Add points after the others; `max_timestamp_ms` is the greatest time up to there."""
        self.is_whole = False
        for point in points:
            self._append(point)
        self.max_timestamp_ms = max(self.max_timestamp_ms, max_timestamp_ms)

    def points_after(self, entry_id: EntryId) -> tuple[IndexPoint, ...]:
        """Return the points after an entry."""
        start = bisect_right(self._entry_ids, entry_id)
        return tuple(self._point(position) for position in range(start, len(self)))

    def find(self, offset: int) -> EntryId:
        """Return an entry at or before the one that contains `offset`."""
        return self._entry_at(bisect_right(self._offsets, offset) - 1)

    def find_timestamp(self, timestamp_ms: int) -> EntryId:
        """Return an entry at or before the first one with a time of at least `timestamp_ms`."""
        return self._entry_at(bisect_left(self._times, timestamp_ms) - 1)

    def _entry_at(self, position: int) -> EntryId:
        return EntryId(self._entry_ids[position]) if position >= 0 else FIRST_ENTRY

    def _point(self, position: int) -> IndexPoint:
        return IndexPoint(
            EntryId(self._entry_ids[position]), self._offsets[position], self._times[position]
        )

    def _append(self, point: IndexPoint) -> None:
        assert not self._entry_ids or self._entry_ids[-1] < point.entry_id
        assert not self._offsets or self._offsets[-1] < point.base_offset
        self._entry_ids.append(point.entry_id)
        self._offsets.append(point.base_offset)
        self._times.append(point.max_timestamp_before_ms)
