"""Bounds of a batch query, from its options to ranges."""

import pytest

from ledger_client import Fragment
from metadata.ids import BookieId, EntryId
from spark_io.common_options import OptionReader
from spark_io.errors import OptionError
from spark_io.ledgers.options import BOUNDS, NO_BOUNDS, Bounds
from spark_io.ranges import EntryRange


def bounds(**options: str) -> Bounds:
    return Bounds.of(OptionReader(options, ("chain", *BOUNDS)))


def pairs(ranges: object) -> list[tuple[int, int, int]]:
    assert ranges is not None
    return [(range_.ledger_id, range_.first, range_.last) for range_ in ranges]  # type: ignore[attr-defined]


def test_without_options_there_are_no_bounds() -> None:
    assert bounds() == NO_BOUNDS
    ranges = [EntryRange(1, 0, 9)]
    assert NO_BOUNDS.entries(ranges) is ranges
    assert NO_BOUNDS.is_within_time(0)


def test_entries_are_clipped_in_each_ledger_and_empty_ranges_are_left_out() -> None:
    ranges = [EntryRange(1, 0, 99), EntryRange(2, 3, 6), EntryRange(3, 0, 1), EntryRange(4, 9, 12)]
    clipped = bounds(startingEntry="2", endingEntry="5").entries(ranges)
    assert pairs(clipped) == [(1, 2, 4), (2, 3, 4)]
    assert pairs(bounds(startingEntry="5").entries(ranges)) == [(1, 5, 99), (2, 5, 6), (4, 9, 12)]


def test_an_end_in_time_is_exclusive_and_may_be_text_or_milliseconds() -> None:
    both = bounds(startingTime="2026-11-28T12:00:00Z", endingTime="1795867201000")
    noon = 1795867200000
    assert [both.is_within_time(noon + each) for each in (-1, 0, 999, 1000)] == [
        False,
        True,
        True,
        False,
    ]
    assert bounds(startingTime="2026-11-28T14:00:00+02:00").first_ms == noon


def test_fragments_are_cut_out_of_ranges() -> None:
    def fragments(*begins: int) -> tuple[Fragment, ...]:
        return tuple(Fragment(EntryId(begin), (BookieId("a"),)) for begin in begins)

    ranges = [EntryRange(1, 2, 30), EntryRange(2, 0, 9), EntryRange(3, 0, 4)]
    known = {1: fragments(0, 10, 20), 2: fragments(0)}
    found = bounds(fragments="2, 0").of_fragments(ranges, known)
    assert pairs(found) == [(1, 2, 9), (1, 20, 30), (2, 0, 9), (3, 0, 4)]
    assert pairs(bounds(fragments="1").of_fragments(ranges[:2], known)) == [(1, 10, 19)]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"startingLink": "3"}, "need the option chain"),
        ({"endingLink": "3"}, "need the option chain"),
        ({"chain": "a", "startingLink": "-3"}, "not a whole number of at least 0"),
        ({"startingTime": "yesterday"}, "write 2026-11-28T12:00:00Z"),
        ({"endingTime": "2026-11-28T12:00:00"}, "write 2026-11-28T12:00:00Z for UTC"),
        ({"endingTime": "2026-11-28"}, "write 2026-11-28T00:00:00Z for UTC"),
        ({"fragments": "0-2"}, "write 0 or 0,2"),
        ({"fragments": ""}, "write 0 or 0,2"),
        ({"endingEntry": "five"}, "not a whole number of at least 0"),
    ],
)
def test_wrong_bounds_are_reported(options: dict[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said):
        bounds(**options)


@pytest.mark.parametrize("name", ["Link", "Time", "Entry"])
def test_an_end_before_the_start_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=f"ending{name}.*3 is before its start, 4"):
        bounds(**{"chain": "c", f"starting{name}": "4", f"ending{name}": "3"})
