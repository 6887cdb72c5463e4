"""Bounds of a batch query: what is left out before anything is read.

Leaves the offsets of single ledgers to `positions`, and the use of the bounds to `selecting` and
`batch`. Pure.

Spark's own filters come after reading (decision 0011). So a query that wants little of much names
it by options.

Source: Spark design, "Reading"; docs/spark.md, "Reading a part".
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from ledger_client import Fragment
from spark_io.common_options import OptionReader
from spark_io.errors import OptionError
from spark_io.ledgers.splits import EntryRange

BOUNDS: Final = (
    "startingLink",
    "endingLink",
    "startingTime",
    "endingTime",
    "startingEntry",
    "endingEntry",
    "fragments",
)
FRAGMENTS_NAMED_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of a batch query. An end is exclusive; None means no limit."""

    first_link: int = 0
    end_link: int | None = None
    first_ms: int | None = None
    end_ms: int | None = None
    first_entry: int = 0
    end_entry: int | None = None
    fragments: tuple[int, ...] = ()
    """Numbers of the fragments to read; empty for all."""

    @classmethod
    def of(cls, given: OptionReader) -> "Bounds":
        """Check the options. Raises OptionError."""
        found = cls(
            first_link=given.natural("startingLink") or 0,
            end_link=given.natural("endingLink"),
            first_ms=_time(given, "startingTime"),
            end_ms=_time(given, "endingTime"),
            first_entry=given.natural("startingEntry") or 0,
            end_entry=given.natural("endingEntry"),
            fragments=_fragments(given),
        )
        has_links = found.first_link > 0 or found.end_link is not None
        if has_links and not given.text("chain"):
            raise OptionError("startingLink", "startingLink and endingLink need the option chain")
        _require_order("Link", found.first_link, found.end_link)
        _require_order("Time", found.first_ms or 0, found.end_ms)
        _require_order("Entry", found.first_entry, found.end_entry)
        return found

    def is_within_time(self, time_ms: int) -> bool:
        """Return whether a time is within the bounds."""
        is_late_enough = self.first_ms is None or time_ms >= self.first_ms
        return is_late_enough and (self.end_ms is None or time_ms < self.end_ms)

    def wants(self, entry_id: int) -> bool:
        """Return whether an entry is before the end of the entries to read."""
        return self.end_entry is None or entry_id < self.end_entry

    def entries(self, ranges: Iterable[EntryRange]) -> Iterable[EntryRange]:
        """Return the ranges without the entries that are outside the bounds."""
        if not self.first_entry and self.end_entry is None:
            return ranges
        first, end = self.first_entry, self.end_entry
        clipped = (
            replace(
                each,
                first=max(each.first, first),
                last=each.last if end is None else min(each.last, end - 1),
            )
            for each in ranges
        )
        return (each for each in clipped if each.count > 0)

    def of_fragments(
        self, ranges: Iterable[EntryRange], fragments: Mapping[int, tuple[Fragment, ...]]
    ) -> Iterator[EntryRange]:
        """Yield the parts of ranges that are in the wanted fragments of their ledgers. A ledger
        whose fragments are not known stays whole.
        """
        for each in ranges:
            if each.ledger_id not in fragments:
                yield each
                continue
            begins = [fragment.first_entry_id for fragment in fragments[each.ledger_id]]
            for number in self.fragments:
                if number >= len(begins):
                    continue
                end = begins[number + 1] if number + 1 < len(begins) else each.last + 1
                part = replace(
                    each, first=max(each.first, begins[number]), last=min(each.last, end - 1)
                )
                if part.count > 0:
                    yield part


NO_BOUNDS: Final = Bounds()


def _require_order(name: str, start: int, end: int | None) -> None:
    if end is not None and end < start:
        why = f"{end} is before its start, {start} (starting{name}): give an end that is not below"
        raise OptionError(f"ending{name}", why)


def _time(given: OptionReader, name: str) -> int | None:
    """Return a time in milliseconds since 1970. Raises OptionError."""
    text = given.text(name)
    if text is None or text.isdecimal():
        return None if text is None else int(text)
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        why = f"{text!r} is not a time: write 2026-11-28T12:00:00Z, or milliseconds since 1970"
        raise OptionError(name, why) from error
    if time.tzinfo is None:
        raise OptionError(name, f"{text!r} has no time zone: write {time.isoformat()}Z for UTC")
    return round(time.timestamp() * 1000)


def _fragments(given: OptionReader) -> tuple[int, ...]:
    text = given.text("fragments")
    if text is None:
        return ()
    parts = text.replace(" ", "").split(",")
    if not all(part.isdecimal() for part in parts) or len(parts) > FRAGMENTS_NAMED_MAX:
        why = f"{text!r} is not a list of at most {FRAGMENTS_NAMED_MAX} numbers: write 0 or 0,2"
        raise OptionError("fragments", why)
    return tuple(sorted({int(part) for part in parts}))
