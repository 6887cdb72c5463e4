"""Offsets are JSON as Kafka's connector writes it; micro-batches read each record once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_layer.log.state.transaction_index import AbortedTransaction
from spark_io.common_options import EARLIEST, LATEST
from spark_io.errors import OffsetError, OptionError
from spark_io.ranges import plan_splits
from spark_io.topics.offsets import (
    AbortedRecords,
    Bounds,
    TopicPartition,
    TopicRange,
    advanced,
    as_json,
    check_order,
    chosen_offsets,
    offsets_of,
    without_topics,
)

ORDERS_0, ORDERS_1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
IDS = {"orders": "0a"}
BOUNDS = {ORDERS_0: Bounds(5, 10), ORDERS_1: Bounds(0, 20)}


def test_offsets_are_json_and_back() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    stored = as_json(offsets)
    assert stored == {"a": {"0": 3}, "b": {"9": 2, "10": 1}}
    assert list(stored["b"]) == ["9", "10"]
    assert offsets_of(stored) == offsets


@pytest.mark.parametrize(
    "stored", [[], 5, {"a": 1}, {"a": {"x": 1}}, {"a": {"0": -1}}, {"a": {"0": True}}]
)
def test_malformed_offsets_are_refused(stored: object) -> None:
    with pytest.raises(OffsetError):
        offsets_of(stored)


@pytest.mark.parametrize(
    ("text", "otherwise", "wanted"),
    [
        ("earliest", LATEST, [5, 0]),
        ("Latest", EARLIEST, [10, 20]),
        ('{"orders": {"0": 7}}', EARLIEST, [7, 0]),
        ('{"orders": {"0": 7}}', LATEST, [7, 20]),
        ('{"orders": {"0": -2, "1": -1}}', EARLIEST, [5, 20]),
    ],
)
def test_valid_offset_options(text: str, otherwise: str, wanted: list[int]) -> None:
    chosen = chosen_offsets("startingOffsets", text, BOUNDS, otherwise, IDS)
    assert [chosen[ORDERS_0], chosen[ORDERS_1]] == wanted


@pytest.mark.parametrize("text", ["now", "{", '{"orders": {"7": 1}}', '{"orders": {"0": -3}}'])
def test_invalid_offset_options(text: str) -> None:
    with pytest.raises(OptionError, match="endingOffsets"):
        chosen_offsets("endingOffsets", text, BOUNDS, LATEST, IDS)


def test_offset_options_with_identities() -> None:
    text = '{"orders": {"0": 7}, "$ids": {"orders": "0a"}}'
    chosen = chosen_offsets("startingOffsets", text, BOUNDS, EARLIEST, IDS)
    assert chosen == {ORDERS_0: 7, ORDERS_1: 0}
    with pytest.raises(OptionError, match=r"'endingOffsets'.*names another topic 'orders'"):
        chosen_offsets("endingOffsets", text, BOUNDS, LATEST, {"orders": "0b"})


def test_offsets_of_some_topics_are_removed() -> None:
    offsets = {ORDERS_0: 1, ORDERS_1: 2, TopicPartition("other", 0): 3}
    assert without_topics(offsets, ["orders"]) == {TopicPartition("other", 0): 3}
    assert without_topics(offsets, []) == offsets


@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(0, 50)), min_size=1, max_size=5),
    st.none() | st.integers(1, 40),
)
def test_micro_batches_read_all_within_the_bound(
    sizes: list[tuple[int, int]], offsets_max: int | None
) -> None:
    bounds = {
        TopicPartition("t", number): Bounds(start, start + count)
        for number, (start, count) in enumerate(sizes)
    }
    at: dict[TopicPartition, int] = {}
    for _ in range(sum(count for _, count in sizes) + 2):
        to = advanced(at, bounds, offsets_max)
        taken = sum(to[partition] - at.get(partition, bounds[partition].start) for partition in to)
        assert offsets_max is None or taken <= offsets_max
        if taken == 0:
            break
        at = to
    assert at == {bound: bounds[bound].end for bound in bounds} or not any(n for _, n in sizes)


def test_a_partition_that_is_not_seen_now_keeps_its_offset() -> None:
    assert advanced({TopicPartition("gone", 0): 4}, {}, None) == {TopicPartition("gone", 0): 4}
    assert advanced({ORDERS_0: 99}, BOUNDS, 7) == {ORDERS_0: 99, ORDERS_1: 7}


@pytest.mark.parametrize(
    ("starting", "ending", "is_wrong"),
    [
        ('{"o": {"0": 5}}', '{"o": {"0": 2}}', True),
        ('{"o": {"0": 5}}', '{"o": {"0": 5}}', False),
        ('{"o": {"0": 5}}', '{"o": {"1": 2, "0": -1}}', False),
        ('{"o": {"0": -2}}', '{"o": {"0": 2}}', False),
        ("earliest", '{"o": {"0": 2}}', False),
        ('{"o": {"0": 5}}', "latest", False),
    ],
)
def test_an_end_before_the_start_is_refused(starting: str, ending: str, is_wrong: bool) -> None:
    if not is_wrong:
        check_order(starting, ending)
        return
    with pytest.raises(OptionError, match="offset 2 of o/0 is before its start, offset 5"):
        check_order(starting, ending)


counts = st.lists(st.integers(1, 200), min_size=1, max_size=8)


@given(counts, st.integers(100, 5_000), st.integers(1, 9))
def test_parts_of_ranges_cover_the_entries_and_keep_the_offsets(
    sizes: list[int], split_bytes: int, min_partitions: int
) -> None:
    ranges = [
        TopicRange(
            ledger_id,
            4,
            4 + count - 1,
            100.0,
            partition=TopicPartition("orders", ledger_id % 3),
            first_offset=ledger_id * 1_000,
            end_offset=ledger_id * 1_000 + 500,
        )
        for ledger_id, count in enumerate(sizes)
    ]
    parts = plan_splits(ranges, split_bytes=split_bytes, min_partitions=min_partitions)
    pieces = [piece for part in parts for piece in part]
    seen = [
        (piece.ledger_id, entry, piece.partition, piece.first_offset, piece.end_offset)
        for piece in pieces
        for entry in range(piece.first, piece.last + 1)
    ]
    assert seen == [
        (range_.ledger_id, entry, range_.partition, range_.first_offset, range_.end_offset)
        for range_ in ranges
        for entry in range(range_.first, range_.last + 1)
    ]


def test_aborted_records() -> None:
    aborted = AbortedRecords(
        [AbortedTransaction(*each, 0) for each in ((7, 20, 29), (7, 5, 10), (8, 0, 3))]
    )
    held = [offset for offset in range(40) if aborted.holds(7, offset)]
    assert held == [*range(5, 11), *range(20, 30)]
    assert aborted.holds(8, 3)
    assert not aborted.holds(8, 4)
    assert not aborted.holds(9, 5)
