"""Counting copies, against counting entry by entry."""

from hypothesis import given
from hypothesis import strategies as st

from ledger_client.reading.verification import ReplicaReport
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.entry_ranges import merged
from metadata.ledgers.ledger_metadata import QuorumSpec
from quire.bench.durability import (
    LedgerSafety,
    count_copies,
    recoverable_without,
    sound_ranges,
)

RANGES = st.lists(
    st.tuples(st.integers(0, 30), st.integers(0, 10)).map(lambda pair: (pair[0], sum(pair))),
    max_size=4,
).map(merged)


@given(st.lists(RANGES, max_size=4), st.integers(-1, 40))
def test_counts_of_copies_equal_counts_entry_by_entry(
    held: list[list[tuple[int, int]]], last: int
) -> None:
    naive: dict[int, int] = {}
    for entry in range(last + 1):
        copies = sum(any(a <= entry <= b for a, b in ranges) for ranges in held)
        naive[copies] = naive.get(copies, 0) + 1
    assert count_copies(held, last) == tuple(sorted(naive.items()))


def test_a_copy_that_is_missing_bad_or_differing_does_not_count() -> None:
    report = ReplicaReport(BookieId("a"), [(0, 9)], 10, [(1, 1)], [(3, 3)], [(5, 5)])
    assert sound_ranges(report) == [(0, 0), (2, 2), (4, 4), (6, 9)]


def test_a_bookie_that_does_not_respond_counts_as_empty() -> None:
    assert sound_ranges(ReplicaReport(BookieId("a"), [(0, 9)], error="timeout")) == []


def safety(*copies: tuple[int, int]) -> LedgerSafety:
    return LedgerSafety(LedgerId(1), "closed", 1, 10, copies, 3, 2, 0, 1)


def test_losable_bookies_follow_from_the_entry_with_fewest_copies() -> None:
    assert safety((2, 1), (3, 9)).losable_bookies == 1
    assert safety((0, 2), (3, 8)).losable_bookies == -1
    assert (safety((0, 2), (3, 8)).lost_count, safety((2, 1), (3, 9)).short_count) == (2, 1)


def test_recovery_decides_while_fewer_than_the_ack_quorum_are_unknown() -> None:
    everyone = {3: [0, 1, 2], 5: [0, 1, 2, 3, 4]}
    assert recoverable_without(QuorumSpec(3, 3, 3), everyone[3]) == 2
    assert recoverable_without(QuorumSpec(3, 3, 2), everyone[3]) == 1
    assert recoverable_without(QuorumSpec(5, 5, 3), everyone[5]) == 2
    assert recoverable_without(QuorumSpec(3, 3, 2), [0, 1]) == 0
    assert recoverable_without(QuorumSpec(3, 3, 2), [0]) == -1
