"""Damaged ranges of stored entries that are not repaired yet. Pure.

Leaves finding damage to `bookie.storage.reading`, and reporting it to `bookie.scrubber`.

Invariants: the ranges of a ledger are ascending, without overlap, and not adjacent; at most
BAD_RANGES_MAX ranges are added. A range may hold entries that are not damaged: a repair compares
each entry with the stored copy.

Source: protocol rule 9.12.
"""

from collections.abc import Callable, Iterable

from metadata.callbacks import Callbacks
from metadata.ids import EntryId, LedgerId
from metadata.repair.scrub import BAD_RANGES_MAX, BadRange
from metadata.store.interface import Cancel


class BadRanges:
    """Damaged ranges of one bookie, by ledger."""

    def __init__(self) -> None:
        self._by_ledger: dict[int, list[tuple[int, int]]] = {}
        self._callbacks = Callbacks[()]()

    @property
    def range_count(self) -> int:
        """Number of ranges."""
        return sum(map(len, self._by_ledger.values()))

    @property
    def entry_count(self) -> int:
        """Number of entries in all ranges."""
        return sum(
            last - first + 1 for ranges in self._by_ledger.values() for first, last in ranges
        )

    def on_change(self, callback: Callable[[], None]) -> Cancel:
        """Call back after each change."""
        return self._callbacks.add(callback)

    def report(self) -> tuple[BadRange, ...]:
        """Return the ranges in the order of ledgers and entries, at most BAD_RANGES_MAX."""
        found = [
            BadRange(LedgerId(ledger_id), EntryId(first), EntryId(last))
            for ledger_id, ranges in sorted(self._by_ledger.items())
            for first, last in ranges
        ]
        return tuple(found[:BAD_RANGES_MAX])

    def restore(self, reported: Iterable[BadRange]) -> None:
        """Add the ranges that were reported before a restart."""
        for each in reported:
            self.note(*each)

    def last_of(self, ledger_id: int, entry_id: int) -> int | None:
        """Return the last entry of the range that holds an entry; None if no range does."""
        ranges = self._by_ledger.get(ledger_id, ())
        return next((last for first, last in ranges if first <= entry_id <= last), None)

    def overlap(self, ledger_id: int, first: int, last: int) -> bool:
        """Return whether first..last holds an entry of a range."""
        ranges = self._by_ledger.get(ledger_id, ())
        return any(low <= last and high >= first for low, high in ranges)

    def note(self, ledger_id: int, first: int, last: int) -> None:
        """Add a range; a new one is ignored when there are BAD_RANGES_MAX already."""
        ranges = self._by_ledger.get(ledger_id, [])
        touching = [each for each in ranges if each[0] <= last + 1 and each[1] + 1 >= first]
        if not touching and self.range_count >= BAD_RANGES_MAX:
            return
        joined = (
            min([first, *(low for low, _ in touching)]),
            max([last, *(high for _, high in touching)]),
        )
        self._set(ledger_id, sorted([joined, *(each for each in ranges if each not in touching)]))

    def clear(self, ledger_id: int, first: int, last: int) -> None:
        """Remove first..last: good copies are stored, or were read."""
        ranges = self._by_ledger.get(ledger_id)
        if ranges is None:
            return
        left: list[tuple[int, int]] = []
        for low, high in ranges:
            parts = ((low, min(high, first - 1)), (max(low, last + 1), high))
            left += [part for part in parts if part[0] <= part[1]]
        self._set(ledger_id, sorted(dict.fromkeys(left)))

    def drop(self, ledger_id: int) -> None:
        """Remove every range of a ledger that is not held any more."""
        self._set(ledger_id, [])

    def _set(self, ledger_id: int, ranges: list[tuple[int, int]]) -> None:
        if ranges == self._by_ledger.get(ledger_id, []):
            return
        if ranges:
            self._by_ledger[ledger_id] = ranges
        else:
            del self._by_ledger[ledger_id]
        self._callbacks.notify()
