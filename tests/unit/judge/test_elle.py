"""Tests of the search for anomalies: one history for each, and histories that Kafka allows."""

import math
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.judge.cycles import Graph, find_cycles
from tests.judge.elle import find_anomalies
from tests.judge.planting import TRANSACTION_PLANTS, NothingToPlantError
from tests.judge.transactions import (
    Elements,
    Outcome,
    Transaction,
    TransactionHistory,
    read_transactions,
    write_transactions,
)

COMMITTED, ABORTED, UNKNOWN = Outcome.COMMITTED, Outcome.ABORTED, Outcome.UNKNOWN
Appends = dict[str, list[str]]


def transaction(
    name: str,
    times: tuple[float, float],
    appends: Elements,
    outcome: Outcome = COMMITTED,
    reads: Elements | None = None,
) -> Transaction:
    end = math.inf if outcome is UNKNOWN else times[1]
    return Transaction(name, name, outcome, times[0], end, reads or {}, appends)


def seen(at: float, reads: Elements, by: str = "reader") -> Transaction:
    return Transaction(f"{by} at {at}", by, COMMITTED, at, at, reads)


def kinds(order: Elements, *transactions: Transaction) -> set[str]:
    report = find_anomalies(TransactionHistory(transactions, order))
    return {anomaly.kind for anomaly in report.anomalies}


FIRST = transaction("first", (1, 2), {"x": ["a1", "a2"], "y": ["a3"]})
SECOND = transaction("second", (3, 4), {"x": ["b1"], "y": ["b2"]})
ORDER = {"x": ["a1", "a2", "b1"], "y": ["a3", "b2"]}


def test_a_correct_history() -> None:
    reads = [seen(5, {"x": ["a1", "a2"]}), seen(6, {"x": ["b1"], "y": ["a3", "b2"]})]
    report = find_anomalies(TransactionHistory([FIRST, SECOND, *reads], ORDER))
    assert report.as_json() == {
        "result": "accepted",
        "transactions": 2,
        "reads": 2,
        "elements": 5,
        "read_from": 0,
        "interleaved": 0,
        "broken": {},
        "anomalies": [],
    }


def test_g0_appends_against_real_time() -> None:
    assert kinds({"x": ["b1", "a1", "a2"], "y": ["a3", "b2"]}, FIRST, SECOND) == {"G0"}


def test_concurrent_transactions_may_interleave() -> None:
    other = transaction("other", (1, 4), {"x": ["b1"], "y": ["b2"]})
    order = {"x": ["a1", "b1", "a2"], "y": ["b2", "a3"]}
    report = find_anomalies(TransactionHistory([FIRST, other], order))
    assert report.anomalies == []
    assert report.interleaved == 1


def test_g0_through_a_third_that_overlaps_both() -> None:
    """The second ends before the third begins, so the log has them in the wrong order."""
    long = transaction("long", (0, 9), {"x": ["c1", "c2"]})
    order = {"x": ["c1", "b1", "a1", "a2", "c2"], "y": ["a3", "b2"]}
    assert kinds(order, FIRST, SECOND, long) == {"G0"}


def test_an_unknown_transaction_may_be_appended_late() -> None:
    late = transaction("late", (1, 2), {"x": ["c1"]}, UNKNOWN)
    assert kinds({"x": ["a1", "a2", "b1", "c1"], "y": ["a3", "b2"]}, FIRST, SECOND, late) == set()


def test_g1a_an_aborted_element_in_the_log() -> None:
    aborted = transaction("aborted", (5, 6), {"x": ["c1"]}, ABORTED)
    assert kinds({**ORDER, "x": ["a1", "a2", "b1", "c1"]}, FIRST, SECOND, aborted) == {"G1a"}


def test_g1a_an_aborted_element_that_a_reader_saw() -> None:
    aborted = transaction("aborted", (5, 6), {"x": ["c1"]}, ABORTED)
    reader = seen(7, {"x": ["a1", "a2", "b1", "c1"]})
    assert kinds(ORDER, FIRST, SECOND, aborted, reader) == {"G1a"}


def test_g1a_an_aborted_element_that_a_transaction_read() -> None:
    aborted = transaction("aborted", (5, 6), {"x": ["c1"]}, ABORTED)
    reader = transaction("derived", (7, 8), {"y": ["d1"]}, reads={"x": ["c1"]})
    order = {**ORDER, "y": ["a3", "b2", "d1"]}
    assert kinds(order, FIRST, SECOND, aborted, reader) == {"G1a"}


def test_g1b_a_torn_transaction() -> None:
    torn = transaction("torn", (5, 6), {"x": ["c1"], "y": ["c2"]}, UNKNOWN)
    assert kinds({**ORDER, "x": ["a1", "a2", "b1", "c1"]}, FIRST, SECOND, torn) == {"G1b"}
    assert kinds(ORDER, FIRST, SECOND, torn) == set()


def test_g1b_a_read_of_a_part() -> None:
    reader = [seen(5, {"x": ["a1"]}), seen(6, {"x": ["b1"]})]
    assert kinds(ORDER, FIRST, SECOND, *reader) == {"G1b"}


def test_a_part_that_is_not_read_yet_is_no_anomaly() -> None:
    """The logs of a transaction become readable one after the other."""
    assert kinds(ORDER, FIRST, SECOND, seen(5, {"x": ["a1", "a2", "b1"]})) == set()


def test_a_transaction_that_was_read_past() -> None:
    reader = seen(5, {"y": ["a3"], "x": ["a1", "a2"]})
    third = transaction("third", (5, 6), {"x": ["c1"]})
    order = {**ORDER, "x": ["a1", "a2", "b1", "c1"]}
    later = seen(7, {"x": ["c1"]})
    assert kinds(order, FIRST, SECOND, third, reader, later) == {"incompatible order"}


@pytest.mark.parametrize("read", [["b1", "a1"], ["a1", "a1"]])
def test_an_order_that_no_log_has(read: list[str]) -> None:
    assert "incompatible order" in kinds(ORDER, FIRST, SECOND, seen(5, {"x": read}))


def test_g1c_two_transactions_that_read_each_other() -> None:
    one = transaction("one", (1, 5), {"x": ["a1"]}, reads={"y": ["b1"]})
    other = transaction("other", (2, 6), {"y": ["b1"]}, reads={"x": ["a1"]})
    assert kinds({"x": ["a1"], "y": ["b1"]}, one, other) == {"G1c"}


def test_g1c_an_append_before_what_was_read() -> None:
    """`other` read of `one`, which was decided then; yet it is before it in a log."""
    one = transaction("one", (1, 5), {"x": ["a1"], "y": ["a2"]})
    other = transaction("other", (2, 6), {"y": ["b1"]}, reads={"x": ["a1"]})
    assert kinds({"x": ["a1"], "y": ["b1", "a2"]}, one, other) == {"G1c"}
    assert kinds({"x": ["a1"], "y": ["a2", "b1"]}, one, other) == set()


def test_g1c_a_read_of_the_future() -> None:
    early = transaction("early", (0, 0.5), {"z": ["c1"]}, reads={"x": ["a1"]})
    assert kinds({**ORDER, "z": ["c1"]}, FIRST, SECOND, early) == {"G1c"}


def test_a_lost_write() -> None:
    assert kinds({"x": ["a1", "a2", "b1"], "y": ["a3"]}, FIRST, SECOND) == {"lost write"}


def test_an_element_that_was_read_and_is_lost() -> None:
    unknown = transaction("unknown", (5, 6), {"x": ["c1"]}, UNKNOWN)
    reader = seen(7, {"x": ["a1", "a2", "b1", "c1"]})
    assert kinds(ORDER, FIRST, SECOND, unknown, reader) == {"lost write"}


def test_an_element_that_is_there_twice() -> None:
    order = {"x": ["a1", "a2", "b1", "a1"], "y": ["a3", "b2"]}
    assert "duplicate" in kinds(order, FIRST, SECOND)


def test_an_element_of_no_transaction() -> None:
    assert kinds({**ORDER, "z": ["d1"]}, FIRST, SECOND) == {"stray"}
    assert kinds(ORDER, FIRST, SECOND, seen(5, {"x": ["d1"]})) == {"stray"}
    moved = {"x": ["a1", "a2"], "y": ["a3", "b2", "b1"]}
    assert "stray" in kinds(moved, FIRST, SECOND)


def test_a_history_is_read_as_it_was_written(tmp_path: Path) -> None:
    unknown = transaction("unknown", (5, 6), {"x": ["c1"]}, UNKNOWN, {"y": ["a3"]})
    history = TransactionHistory([FIRST, SECOND, unknown, seen(7, {"x": ["a1"]})], ORDER)
    write_transactions(tmp_path / "history", history)
    assert read_transactions(tmp_path / "history") == history


def test_planted_errors_are_found() -> None:
    aborted = transaction("aborted", (5, 6), {"x": ["c1"]}, ABORTED)
    history = TransactionHistory([FIRST, SECOND, aborted], ORDER)
    assert find_anomalies(history).anomalies == []
    for kind, expected in (("lost-write", "lost write"), ("aborted-read", "G1a")):
        report = find_anomalies(TRANSACTION_PLANTS[kind](history))
        assert {anomaly.kind for anomaly in report.anomalies} == {expected}
        with pytest.raises(NothingToPlantError):
            TRANSACTION_PLANTS[kind](TransactionHistory([], {}))


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=14))
def test_cycles_are_found_where_a_naive_search_finds_them(edges: Sequence[tuple[int, int]]) -> None:
    graph = Graph()
    for _ in range(8):
        graph.add_node()
    for start, end in edges:
        if start != end:
            graph.add_edge(start, "next", end)
    reached = {(start, end) for start, end in edges if start != end}
    for middle in range(8):
        for start in range(8):
            for end in range(8):
                if {(start, middle), (middle, end)} <= reached:
                    reached.add((start, end))
    on_cycles = {node for node in range(8) if (node, node) in reached}
    parts = {frozenset(n for n in on_cycles if {(m, n), (n, m)} <= reached) for m in on_cycles}
    cycles = find_cycles(graph)
    assert len(cycles) == len(parts)
    for cycle in cycles:
        assert all((start, end) in edges for start, _, end in cycle)
        ends = [end for _, _, end in cycle]
        assert [start for start, _, _ in cycle] == [ends[-1], *ends[:-1]]
