"""The parts of a query over topics cover it, and aborted transactions are identified exactly."""

from hypothesis import given
from hypothesis import strategies as st

from spark_io.ledgers.splits import EntryRange
from spark_io.topics.topic_offsets import TopicPartition
from spark_io.topics.topic_splits import AbortedRange, AbortedRecords, TopicRange, plan_topic_splits

counts = st.lists(st.integers(1, 200), min_size=1, max_size=8)


@given(counts, st.integers(100, 5_000), st.integers(1, 9))
def test_parts_cover_the_entries_and_keep_the_offsets(
    sizes: list[int], split_bytes: int, min_partitions: int
) -> None:
    ranges = [
        TopicRange(
            TopicPartition("orders", ledger_id % 3),
            EntryRange(ledger_id, 4, 4 + count - 1, 100.0),
            ledger_id * 1_000,
            ledger_id * 1_000 + 500,
        )
        for ledger_id, count in enumerate(sizes)
    ]
    parts = plan_topic_splits(ranges, split_bytes=split_bytes, min_partitions=min_partitions)
    pieces = [piece for part in parts for piece in part]
    seen = [
        (piece.entries.ledger_id, entry, piece.partition, piece.first_offset, piece.end_offset)
        for piece in pieces
        for entry in range(piece.entries.first, piece.entries.last + 1)
    ]
    assert seen == [
        (each.entries.ledger_id, entry, each.partition, each.first_offset, each.end_offset)
        for each in ranges
        for entry in range(each.entries.first, each.entries.last + 1)
    ]


def test_aborted_records() -> None:
    aborted = AbortedRecords(
        [AbortedRange(7, 20, 29), AbortedRange(7, 5, 10), AbortedRange(8, 0, 3)]
    )
    held = [offset for offset in range(40) if aborted.holds(7, offset)]
    assert held == [*range(5, 11), *range(20, 30)]
    assert aborted.holds(8, 3)
    assert not aborted.holds(8, 4)
    assert not aborted.holds(9, 5)
