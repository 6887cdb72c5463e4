"""Split of a query's ranges into parts, one for each task.

Leaves reading them to `spark_io.ledgers.reading`. Pure.

A part is a list of ranges: a large ledger makes many parts, and many small ledgers make one. Ranges
are not split at fragments, because a range over several fragments is read as fast, and because
planning then needs only a chain's links.

Invariants: the parts cover exactly the given ranges, in order, and no entry twice.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

ENTRY_BYTES_ASSUMED: Final = 1024
"""Assumed size of an entry of an open ledger, in bytes: the ledger's length is not known."""
RANGES_PER_SPLIT_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class EntryRange:
    """Consecutive entries of one ledger, `first` to `last`, and their approximate size."""

    ledger_id: int
    first: int
    last: int
    entry_bytes: float = ENTRY_BYTES_ASSUMED
    creation_token: bytes = b""
    """Identity of the ledger; empty if planning did not read the ledger's metadata."""

    @property
    def count(self) -> int:
        """Number of entries."""
        return self.last - self.first + 1

    @property
    def size(self) -> float:
        """Approximate number of bytes; an entry counts as at least one."""
        return self.count * max(1.0, self.entry_bytes)


@dataclass(frozen=True, slots=True)
class KnownLedger:
    """A ledger of which the entries 0 to `end` - 1 may be read."""

    ledger_id: int
    end: int
    entry_bytes: float
    is_closed: bool
    creation_token: bytes = b""
    """Identity of the ledger; empty if its metadata was not read."""

    def range_from(self, first: int = 0, end: int | None = None) -> EntryRange:
        """Return the range from an entry up to, not including, `end` (default: the known end)."""
        last = (self.end if end is None else min(end, self.end)) - 1
        return EntryRange(self.ledger_id, first, last, self.entry_bytes, self.creation_token)


def plan_splits(
    ranges: Sequence[EntryRange],
    *,
    split_bytes: int,
    split_entries: int | None = None,
    min_partitions: int = 1,
) -> list[tuple[EntryRange, ...]]:
    """Return the parts, each of about `split_bytes` and at most `split_entries` entries."""
    total = sum(each.size for each in ranges)
    size_max = max(1.0, min(float(split_bytes), total / min_partitions))
    parts: list[tuple[EntryRange, ...]] = []
    part: list[EntryRange] = []
    size, count = 0.0, 0
    for piece in _pieces(ranges, size_max, split_entries):
        is_over = size + piece.size > size_max * 1.001
        has_too_many = split_entries is not None and count + piece.count > split_entries
        if part and (is_over or has_too_many or len(part) == RANGES_PER_SPLIT_MAX):
            parts.append(tuple(part))
            part, size, count = [], 0.0, 0
        part.append(piece)
        size, count = size + piece.size, count + piece.count
    if part:
        parts.append(tuple(part))
    return parts


def _pieces(
    ranges: Iterable[EntryRange], size_max: float, split_entries: int | None
) -> Iterator[EntryRange]:
    """Split ranges that are too large for one part into equal pieces."""
    for each in ranges:
        if each.count <= 0:
            continue
        wanted = -(-each.size // size_max)
        if split_entries is not None:
            wanted = max(wanted, -(-each.count // split_entries))
        pieces = int(min(wanted, each.count))
        at = each.first
        for number in range(1, pieces + 1):
            end = each.first + each.count * number // pieces
            yield replace(each, first=at, last=end - 1)
            at = end
