"""Tests of the last stable offset and aborted transactions, compared with a naive twin."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from broker_layer.log.state.transaction_index import AbortedTransaction, TransactionIndex


def test_without_transactions_high_watermark_is_stable() -> None:
    assert TransactionIndex().last_stable_offset(9) == 9


def test_long_transaction_limits_last_stable_offset() -> None:
    index = TransactionIndex()
    index.begin(1, 10)
    index.begin(2, 11)
    index.end(2, 12, is_aborted=True)
    assert index.last_stable_offset(13) == 10
    index.end(1, 13, is_aborted=False)
    assert index.last_stable_offset(13) == 10  # its marker is not confirmed
    assert index.last_stable_offset(14) == 14
    assert index.aborted_snapshot() == (AbortedTransaction(2, 11, 12, 10),)


def test_open_transaction_keeps_first_offset() -> None:
    index = TransactionIndex()
    index.begin(1, 10)
    index.begin(1, 20)
    assert index.first_offset_of(1) == 10
    assert list(index.producers) == [1]


def test_marker_without_transaction_is_ignored() -> None:
    index = TransactionIndex()
    index.end(1, 5, is_aborted=True)
    assert index.aborted_count == 0
    assert index.last_stable_offset(3) == 3


def test_unconfirmed_marker_limits_last_stable_offset() -> None:
    index = TransactionIndex()
    for producer_id, first_offset in ((1, 10), (2, 15)):
        index.begin(producer_id, first_offset)
    index.end(1, 20, is_aborted=False)
    index.end(2, 25, is_aborted=False)
    stable = [index.last_stable_offset(high_watermark) for high_watermark in (20, 21, 25, 26)]
    assert stable == [10, 15, 15, 26]


def test_transaction_around_others_limits_last_stable_offset() -> None:
    index = TransactionIndex()
    for producer_id, first_offset in ((1, 5), (2, 10), (3, 15), (4, 20)):
        index.begin(producer_id, first_offset)
    for producer_id, marker_offset in ((1, 25), (3, 30), (4, 35), (2, 40)):
        index.end(producer_id, marker_offset, is_aborted=False)
    high_watermarks = (25, 26, 32, 40, 41)
    stable = [index.last_stable_offset(high_watermark) for high_watermark in high_watermarks]
    assert stable == [5, 10, 10, 10, 41]


def test_all_aborted_transactions_in_range_are_found() -> None:
    index = TransactionIndex()
    for producer_id in (1, 2, 3):
        index.begin(producer_id, producer_id * 10)
        index.end(producer_id, producer_id * 10 + 5, is_aborted=True)
    for end_offset, expected in ((10, []), (11, [1]), (21, [1, 2]), (36, [1, 2, 3])):
        found = index.aborted_in(0, end_offset, 40)
        assert [transaction.producer_id for transaction in found] == expected


def test_aborted_transaction_overlapping_range_is_found() -> None:
    index = TransactionIndex()
    index.begin(1, 10)
    index.end(1, 20, is_aborted=True)
    expected = [AbortedTransaction(1, 10, 20, 21)]
    assert index.aborted_in(12, 13, 21) == expected
    assert index.aborted_in(20, 30, 21) == expected
    assert index.aborted_in(21, 30, 30) == []
    assert index.aborted_in(0, 10, 30) == []
    assert index.aborted_in(12, 13, 20) == []


def test_log_start_drops_transactions_below_it() -> None:
    index = TransactionIndex()
    for producer_id in (1, 2):
        index.begin(producer_id, producer_id * 10)
        index.end(producer_id, producer_id * 10 + 5, is_aborted=True)
    index.drop_below(15)
    assert index.aborted_count == 2
    index.drop_below(16)
    assert index.aborted_snapshot() == (AbortedTransaction(2, 20, 25, 26),)


def test_load_replaces_transactions_and_producer_view() -> None:
    index = TransactionIndex()
    index.begin(7, 8)
    index.end(7, 9, is_aborted=True)
    index.begin(1, 10)
    producers = index.producers
    index.load([(3, 30), (2, 31)], [AbortedTransaction(9, 1, 2, 3)])
    assert list(producers) == [3, 2]
    assert index.open_snapshot() == ((3, 30), (2, 31))
    assert index.last_stable_offset(9) == 9
    assert index.last_stable_offset(40) == 30


@dataclass
class Twin:
    """All transactions as [producer, first offset, marker or None, aborted]."""

    transactions: list[tuple[int, int, int | None, bool]] = field(default_factory=list)

    def begin(self, producer: int, offset: int) -> None:
        if not any(
            transaction[0] == producer and transaction[2] is None
            for transaction in self.transactions
        ):
            self.transactions.append((producer, offset, None, False))

    def end(self, producer: int, offset: int, *, is_aborted: bool) -> None:
        self.transactions = [
            (transaction[0], transaction[1], offset, is_aborted)
            if transaction[0] == producer and transaction[2] is None
            else transaction
            for transaction in self.transactions
        ]

    def last_stable_offset(self, high_watermark: int) -> int:
        undecided = [
            first
            for _, first, marker, _ in self.transactions
            if marker is None or marker >= high_watermark
        ]
        return min([high_watermark, *undecided])

    def aborted_in(self, first: int, end: int, high_watermark: int) -> list[tuple[int, int]]:
        found = [
            (marker, producer, begin)
            for producer, begin, marker, is_aborted in self.transactions
            if is_aborted and marker is not None and begin < end
            if first <= marker < high_watermark
        ]
        return [(producer, begin) for _, producer, begin in sorted(found)]


moves = st.lists(
    st.tuples(
        st.sampled_from(["begin", "begin", "abort", "commit", "confirm"]),
        st.integers(1, 5),
        st.integers(1, 6),
    ),
    max_size=60,
)


@given(moves, st.data())
def test_transactions_match_naive_twin(
    steps: list[tuple[str, int, int]], data: st.DataObject
) -> None:
    index, twin = TransactionIndex(), Twin()
    next_offset = high_watermark = 0
    for kind, producer, count in steps:
        match kind:
            case "begin":
                index.begin(producer, next_offset)
                twin.begin(producer, next_offset)
                next_offset += count
            case "confirm":
                high_watermark = min(next_offset, high_watermark + count)
            case _:
                index.end(producer, next_offset, is_aborted=kind == "abort")
                twin.end(producer, next_offset, is_aborted=kind == "abort")
                next_offset += 1
        stable = index.last_stable_offset(high_watermark)
        assert stable == twin.last_stable_offset(high_watermark)
        # Readers of committed records read up to the last stable offset.
        first = data.draw(st.integers(0, stable))
        end = data.draw(st.integers(first, stable))
        found = index.aborted_in(first, end, high_watermark)
        expected = twin.aborted_in(first, end, high_watermark) if first < end else []
        if first < end:
            assert [
                (transaction.producer_id, transaction.first_offset) for transaction in found
            ] == expected
