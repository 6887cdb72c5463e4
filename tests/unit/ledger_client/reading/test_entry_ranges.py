"""Ranges agree with plain sets of numbers."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ledger_client.protocol.quorum import write_set
from ledger_client.reading.entry_ranges import (
    Range,
    common,
    describe_ranges,
    entry_count,
    expected_ranges,
    merged,
    without,
)
from metadata.ids import BookieId, EntryId
from metadata.ledgers.ledger_metadata import (
    QuorumSpec,
)
from tests.support.sample_ledgers import bookies, ledger_of, open_ledger

RANGES = st.lists(
    st.tuples(st.integers(0, 60), st.integers(0, 10)).map(lambda pair: (pair[0], sum(pair)))
)


def numbers(ranges: list[Range]) -> set[int]:
    return {n for first, last in ranges for n in range(first, last + 1)}


@given(RANGES)
def test_merged_keeps_the_numbers_and_joins_neighbours(ranges: list[Range]) -> None:
    joined = merged(ranges)
    assert numbers(joined) == numbers(ranges)
    assert all(a[1] + 1 < b[0] for a, b in pairwise(joined))


@given(RANGES, RANGES)
def test_without_is_the_difference(ranges: list[Range], removed: list[Range]) -> None:
    kept = merged(ranges)
    left = without(kept, removed)
    assert numbers(left) == numbers(kept) - numbers(removed)
    assert entry_count(left) == len(numbers(left))
    assert all(first <= last for first, last in left)


@given(RANGES, RANGES)
def test_common_is_the_intersection(ranges: list[Range], others: list[Range]) -> None:
    both = common(merged(ranges), merged(others))
    assert numbers(both) == numbers(ranges) & numbers(others)


@given(
    ensemble=st.integers(1, 5),
    write=st.integers(1, 5),
    stripe=st.integers(1, 7),
    second=st.integers(1, 30),
    last=st.integers(-1, 40),
)
def test_expected_ranges_are_the_write_sets(
    ensemble: int, write: int, stripe: int, second: int, last: int
) -> None:
    quorum = QuorumSpec(ensemble, min(write, ensemble), 1, stripe_entries=stripe)
    one = tuple(BookieId(f"a{i}") for i in range(ensemble))
    two = (*one[1:], BookieId("spare"))
    ledger = ledger_of((0, one), (second, two), quorum=quorum)
    plain: dict[BookieId, set[int]] = {}
    for entry in range(last + 1):
        fragment = ledger.fragment_of(EntryId(entry))
        for bookie_id in write_set(quorum, fragment, EntryId(entry)):
            plain.setdefault(bookie_id, set()).add(entry)
    found = expected_ranges(ledger, last)
    assert {b: numbers(ranges) for b, ranges in found.items() if ranges} == plain


def test_each_fragment_ends_where_the_next_begins() -> None:
    a, b, c = bookies("abc")
    ledger = open_ledger("a", "b", "c", quorum=QuorumSpec(1, 1, 1))
    assert expected_ranges(ledger, 24) == {a: [(0, 9)], b: [(10, 19)], c: [(20, 24)]}


def test_ranges_are_described() -> None:
    assert describe_ranges([(0, 9), (12, 12)]) == "0-9, 12"
    assert describe_ranges([(0, 0), (2, 2), (4, 4)], shown_max=2) == "0, 2, and 1 more"
    six = [(each, each) for each in range(0, 12, 2)]
    assert describe_ranges(six[:5]) == "0, 2, 4, 6, 8"
    assert describe_ranges(six) == "0, 2, 4, 6, 8, and 1 more"
