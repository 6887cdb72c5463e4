"""Ranges of entries in columns, as a plan and its tasks hold them.

Leaves the meaning of a range to `splits`. Pure.

Format: three columns of 64-bit integers (ledger id, first and last entry), one of doubles (bytes of
an entry), and the creation tokens, or none if no range has one. A query over a million ledgers
has 32 bytes for each of them in memory, and in the plan that Spark holds; 40 if the query wants the
numbers of links.

Invariants: the ranges come back as they were given, in order, without links if they are not kept.
"""

from array import array
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import Final

from spark_io.ledgers.splits import EntryRange

_NO_LINK: Final = -1


class PackedRanges:
    """A sequence of ranges that can only be added to and iterated over."""

    __slots__ = ("_entry_bytes", "_firsts", "_ids", "_lasts", "_links", "_tokens")

    def __init__(self, ranges: Iterable[EntryRange] = (), *, keeps_links: bool = False) -> None:
        self._ids, self._firsts, self._lasts = array("q"), array("q"), array("q")
        self._entry_bytes = array("d")
        self._tokens: list[bytes] = []
        self._links = array("q") if keeps_links else None
        for each in ranges:
            self.add(each)

    def add(self, wanted: EntryRange) -> None:
        """Add a range at the end."""
        self._ids.append(wanted.ledger_id)
        self._firsts.append(wanted.first)
        self._lasts.append(wanted.last)
        self._entry_bytes.append(wanted.entry_bytes)
        if self._links is not None:
            self._links.append(_NO_LINK if wanted.link is None else wanted.link)
        if wanted.creation_token or self._tokens:
            missing = len(self._ids) - 1 - len(self._tokens)
            self._tokens += [b""] * missing + [wanted.creation_token]

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


def _link_of(stored: int) -> int | None:
    return None if stored == _NO_LINK else stored
