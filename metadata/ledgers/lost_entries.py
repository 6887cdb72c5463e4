"""Entries of a ledger whose loss an operator accepted, as a list of ranges. Pure.

Leaves finding out which entries are lost to `quire.repair.losses`, and storing the list
to `metadata.ledgers.ledger_metadata`.

Invariants: the ranges of a list ascend and do not overlap; two that touch were accepted at
different times. An entry that is in the list stays in it, with the time of its first acceptance.

Source: protocol rule 9.9.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Final

from metadata.ids import ENTRY_ID_MAX, EntryId

LOST_RANGES_MAX: Final = 5_000
"""Maximum number of ranges of one ledger: about 100 KB of its metadata."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """Consecutive entries, both ends included, whose loss was accepted."""

    first_entry_id: EntryId
    last_entry_id: EntryId
    """ENTRY_ID_MAX in a range after the end of the ledger: how many were acknowledged is not known
    (rule 9.11).
    """
    accepted_ms: int
    """Time of the acceptance, in milliseconds since 1970."""

    @property
    def is_after_the_end(self) -> bool:
        """Whether the range begins after the ledger's last entry."""
        return self.last_entry_id == ENTRY_ID_MAX


def range_of(ranges: Sequence[LostRange], entry_id: int) -> LostRange | None:
    """Return the range that contains an entry."""
    index = bisect_right(ranges, entry_id, key=lambda range_: range_.first_entry_id) - 1
    if index < 0 or ranges[index].last_entry_id < entry_id:
        return None
    return ranges[index]


def next_range(ranges: Sequence[LostRange], entry_id: int) -> LostRange | None:
    """Return the first range that begins after an entry."""
    index = bisect_right(ranges, entry_id, key=lambda range_: range_.first_entry_id)
    return ranges[index] if index < len(ranges) else None


def with_ranges(
    known: Sequence[LostRange], ranges: Iterable[tuple[int, int]], accepted_ms: int
) -> tuple[LostRange, ...]:
    """Return the list with more entries, given as (first, last) in ascending order; entries that
    are in the list already keep their time.
    """
    added = [
        LostRange(EntryId(first), EntryId(last), accepted_ms)
        for begin, end in ranges
        for first, last in entries_left(known, begin, end)
    ]
    joined: list[LostRange] = []
    for range_ in sorted([*known, *added], key=lambda range_: range_.first_entry_id):
        before = joined[-1] if joined else None
        if before is not None and _continues(before, range_):
            joined[-1] = replace(
                before, last_entry_id=max(before.last_entry_id, range_.last_entry_id)
            )
        else:
            joined.append(range_)
    return tuple(joined)


def entries_left(lost: Sequence[LostRange], first: int, last: int) -> list[tuple[int, int]]:
    """Return the parts of first..last that are not lost."""
    if not lost:
        return [(first, last)] if first <= last else []
    left: list[tuple[int, int]] = []
    begin = bisect_left(lost, first, key=lambda range_: range_.last_entry_id)
    for lost_range in islice(lost, begin, None):
        if lost_range.first_entry_id > last:
            break
        if lost_range.first_entry_id > first:
            left.append((first, lost_range.first_entry_id - 1))
        first = lost_range.last_entry_id + 1
    return [*left, (first, last)] if first <= last else left


def why_invalid(ranges: Sequence[LostRange], last_entry_id: EntryId | None) -> str:
    """Return what is wrong with the list of a ledger that ends at an entry; empty if nothing is.
    The last entry is None while the ledger is not closed.
    """
    if ranges and last_entry_id is None:
        return "only a closed ledger has lost entries"
    if len(ranges) > LOST_RANGES_MAX:
        return (
            f"it would have {len(ranges)} ranges of lost entries, and at most {LOST_RANGES_MAX} "
            "fit: read what is left, and delete the ledger"
        )
    if any(range_.first_entry_id > range_.last_entry_id for range_ in ranges):
        return "a range of lost entries ends before it begins"
    if any(a.last_entry_id >= b.first_entry_id or _continues(a, b) for a, b in pairwise(ranges)):
        return "the ranges of lost entries are not ascending, or not joined"
    end = -1 if last_entry_id is None else last_entry_id
    for range_ in ranges:
        is_after = range_.is_after_the_end and range_.first_entry_id == end + 1
        if range_.last_entry_id > end and not is_after:
            return "a range of lost entries is beyond the ledger's last entry"
    return ""


def _continues(before: LostRange, after: LostRange) -> bool:
    """Return whether two ranges are stored as one. That after the end stays separate."""
    is_adjacent = before.last_entry_id + 1 >= after.first_entry_id
    is_alike = before.accepted_ms == after.accepted_ms
    return is_adjacent and is_alike and not after.is_after_the_end
