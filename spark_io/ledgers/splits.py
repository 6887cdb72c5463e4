"""Split of a query's ranges into parts, one for each task.

Leaves reading them to `spark_io.ledgers.reading`. Pure.

A part is a list of ranges: a large ledger makes many parts, and many small ledgers make one. Ranges
are not split at fragments, because a range over several fragments is read as fast, and because
planning then needs only a chain's links.

Invariants: the parts cover exactly the given ranges, in order, and no entry twice.
"""

from collections.abc import Iterable, Iterator
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
    link: int | None = None
    """Number of the ledger's link in its chain; None without a chain."""

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
    created_ms: int = 0
    """Creation time by the writer's clock, in milliseconds since 1970."""
    link: int | None = None
    """Number of the ledger's link in its chain; None without a chain."""

    def range_from(self, first: int = 0, end: int | None = None) -> EntryRange:
        """Return the range from an entry up to, not including, `end` (default: the known end). A
        given end is not clipped: it may be known from elsewhere.
        """
        last = (self.end if end is None else end) - 1
        return EntryRange(
            self.ledger_id, first, last, self.entry_bytes, self.creation_token, self.link
        )


def plan_splits(
    ranges: Iterable[EntryRange],
    *,
    split_bytes: int,
    split_entries: int | None = None,
    min_partitions: int = 1,
) -> Iterator[tuple[EntryRange, ...]]:
    """Yield the parts, each of about `split_bytes` and at most `split_entries` entries. `ranges` is
    iterated over twice if more than one part is wanted.
    """
    size_max = float(split_bytes)
    if min_partitions > 1:
        size_max = min(size_max, sum(each.size for each in ranges) / min_partitions)
    size_max = max(1.0, size_max)
    part: list[EntryRange] = []
    size, count = 0.0, 0
    for piece in _pieces(ranges, size_max, split_entries):
        piece_size, piece_count = piece.size, piece.count
        is_over = size + piece_size > size_max * 1.001
        has_too_many = split_entries is not None and count + piece_count > split_entries
        if part and (is_over or has_too_many or len(part) == RANGES_PER_SPLIT_MAX):
            yield tuple(part)
            part, size, count = [], 0.0, 0
        part.append(piece)
        size, count = size + piece_size, count + piece_count
    if part:
        yield tuple(part)


def _pieces(
    ranges: Iterable[EntryRange], size_max: float, split_entries: int | None
) -> Iterator[EntryRange]:
    """Split ranges that are too large for one part into equal pieces."""
    for each in ranges:
        count, size = each.count, each.size
        if count <= 0:
            continue
        if size <= size_max and (split_entries is None or count <= split_entries):
            yield each
            continue
        wanted = -(-size // size_max)
        if split_entries is not None:
            wanted = max(wanted, -(-count // split_entries))
        pieces = int(min(wanted, each.count))
        at = each.first
        for number in range(1, pieces + 1):
            end = each.first + each.count * number // pieces
            yield replace(each, first=at, last=end - 1)
            at = end
