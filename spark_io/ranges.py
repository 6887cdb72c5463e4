"""Ranges of ledgers: one type for all plans, its packed form, and the split into parts of tasks.

Leaves finding and reading them to the data sources. Pure.

A part is a list of ranges: a large ledger makes many parts, and many small ledgers make one. Ranges
are not split at fragments, because a range over several fragments is read as fast, and because
planning then needs only a chain's links.
"""

from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Final, TypeVar

ENTRY_BYTES_ASSUMED: Final = 1024
"""Assumed size of an entry of an open ledger, in bytes: the ledger's length is not known."""
RANGES_PER_SPLIT_MAX: Final = 1_000

_NO_LINK: Final = -1


@dataclass(frozen=True, slots=True)
class EntryRange:
    """Consecutive entries of one ledger, `first` to `last`, and their approximate size.

    A ledger is known by the range of its entries that may be read, from entry 0 on.
    """

    ledger_id: int
    first: int
    last: int
    entry_bytes: float = ENTRY_BYTES_ASSUMED
    creation_token: bytes = b""
    """Identity of the ledger; empty if planning did not read the ledger's metadata."""
    link: int | None = None
    """Number of the ledger's link in its chain; None without a chain."""
    is_open: bool = False
    """Whether the ledger may get entries after the last; never of a part of a ledger."""

    @property
    def end(self) -> int:
        """The entry after the last."""
        return self.last + 1

    @property
    def count(self) -> int:
        """Number of entries."""
        return self.last - self.first + 1

    @property
    def size(self) -> float:
        """Approximate number of bytes; an entry counts as at least one."""
        return self.count * max(1.0, self.entry_bytes)

    def part(self, first: int = 0, end: int | None = None) -> "EntryRange":
        """Return the part from an entry up to, not including, `end` (default: the known end). A
        given end is not clipped: it may be known from elsewhere.
        """
        last = self.last if end is None else end - 1
        return replace(self, first=first, last=last, is_open=False)


RangeT = TypeVar("RangeT", bound=EntryRange)


class PackedRanges:
    """Ranges in columns, as plans, their tasks and remembered links hold them. They can only be
    added to and iterated over.

    A range has 32 bytes, in memory and in the plan that Spark holds, because a query may be over
    millions of ledgers: three columns of 64-bit integers (ledger id, first and last entry), and one
    of doubles (bytes of an entry). Numbers of links, if they are kept, are 8 more. Creation tokens
    are held only if a range has one.

    Invariants: the ranges come back as they were given, in order, without links if they are not
    kept; none is of a ledger that may grow.
    """

    __slots__ = ("_entry_bytes", "_firsts", "_ids", "_lasts", "_links", "_tokens")

    def __init__(self, ranges: Iterable[EntryRange] = (), *, keeps_links: bool = False) -> None:
        self._ids, self._firsts, self._lasts = array("q"), array("q"), array("q")
        self._entry_bytes = array("d")
        self._tokens: list[bytes] = []
        self._links = array("q") if keeps_links else None
        for range_ in ranges:
            self.add(range_)

    def add(self, wanted: EntryRange) -> None:
        """Add a range at the end."""
        assert not wanted.is_open, "its end does not change"
        self._ids.append(wanted.ledger_id)
        self._firsts.append(wanted.first)
        self._lasts.append(wanted.last)
        self._entry_bytes.append(wanted.entry_bytes)
        if self._links is not None:
            self._links.append(_NO_LINK if wanted.link is None else wanted.link)
        if wanted.creation_token or self._tokens:
            missing = len(self._ids) - 1 - len(self._tokens)
            self._tokens += [b""] * missing + [wanted.creation_token]

    @property
    def entry_count(self) -> int:
        """Number of entries in all ranges."""
        return sum(self._lasts) - sum(self._firsts) + len(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def __iter__(self) -> Iterator[EntryRange]:
        tokens = self._tokens or [b""] * len(self._ids)
        columns = self._ids, self._firsts, self._lasts, self._entry_bytes, tokens
        links = repeat(None, len(self._ids)) if self._links is None else map(_link_of, self._links)
        for columns_of_range in zip(*columns, links, strict=True):
            yield EntryRange(*columns_of_range)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PackedRanges) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # it can be added to


@dataclass(frozen=True, slots=True)
class LinkRanges:
    """The ledgers of one link of a chain, each as the range that may be read."""

    index: int
    published_ms: int
    ledgers: tuple[EntryRange, ...] | PackedRanges


def _link_of(stored: int) -> int | None:
    return None if stored == _NO_LINK else stored


def plan_splits(
    ranges: Iterable[RangeT],
    *,
    split_bytes: int,
    split_entries: int | None = None,
    min_partitions: int = 1,
) -> Iterator[tuple[RangeT, ...]]:
    """Yield the parts, each of about `split_bytes` and at most `split_entries` entries. They cover
    the given ranges, in order, and no entry twice. `ranges` is iterated over twice if more than one
    part is wanted.
    """
    size_max = float(split_bytes)
    if min_partitions > 1:
        size_max = min(size_max, sum(range_.size for range_ in ranges) / min_partitions)
    size_max = max(1.0, size_max)
    part: list[RangeT] = []
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
    ranges: Iterable[RangeT], size_max: float, split_entries: int | None
) -> Iterator[RangeT]:
    """Split ranges that are too large for one part into equal pieces."""
    for range_ in ranges:
        count, size = range_.count, range_.size
        if count <= 0:
            continue
        if size <= size_max and (split_entries is None or count <= split_entries):
            yield range_
            continue
        wanted = -(-size // size_max)
        if split_entries is not None:
            wanted = max(wanted, -(-count // split_entries))
        pieces = int(min(wanted, range_.count))
        at = range_.first
        for number in range(1, pieces + 1):
            end = range_.first + range_.count * number // pieces
            yield replace(range_, first=at, last=end - 1)
            at = end
