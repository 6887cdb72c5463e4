"""Tests of the end offsets of leader epochs, compared with a naive implementation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker_layer.log.state import epoch_table
from broker_layer.log.state.epoch_table import EpochTable
from metadata.topics.partition import EpochStart


def table(*starts: tuple[int, int]) -> EpochTable:
    return EpochTable.of(EpochStart(epoch, offset) for epoch, offset in starts)


def test_epoch_ends_at_next_start_or_log_end() -> None:
    made = table((2, 0), (5, 10), (6, 30))
    answers = {epoch: made.end_of_epoch(epoch, 44) for epoch in range(-2, 8)}
    assert answers == {
        -2: (-2, 0),
        -1: (-1, -1),
        0: (0, 0),
        1: (1, 0),
        2: (2, 10),
        3: (2, 10),
        4: (2, 10),
        5: (5, 30),
        6: (6, 44),
        7: (-1, -1),
    }


def test_empty_table() -> None:
    assert EpochTable().end_of_epoch(0, 7) == (-1, -1)
    assert EpochTable().end_of_epoch(-2, 7) == (-1, -1)
    assert EpochTable().without_below(4) == EpochTable()


def test_leadership_without_records() -> None:
    made = table((1, 0), (2, 10), (3, 10))
    assert made.end_of_epoch(2, 20) == (2, 10)
    assert made.end_of_epoch(1, 20) == (1, 10)


def test_cut_log_ends_epochs_at_cut() -> None:
    made = table((1, 0), (2, 10), (3, 20)).with_start(4, 15)
    assert made == table((1, 0), (2, 10), (4, 15))
    assert made.end_of_epoch(3, 18) == (2, 15)


def test_lower_epoch_removes_later_entries() -> None:
    assert table((1, 0), (5, 10)).with_start(3, 20) == table((1, 0), (3, 20))
    assert table((1, 0), (3, 10)).with_start(3, 20) == table((1, 0), (3, 20))


@pytest.mark.parametrize("starts", [[(2, 0), (1, 5)], [(2, 0), (2, 5)], [(1, 5), (2, 4)]])
def test_unordered_table_is_detected(starts: list[tuple[int, int]]) -> None:
    assert not EpochTable(tuple(EpochStart(epoch, offset) for epoch, offset in starts)).is_ordered


def test_newest_epoch_below_log_start_begins_at_log_start() -> None:
    made = table((1, 0), (2, 10), (3, 20))
    assert made.without_below(0) == made
    assert made.without_below(15) == table((2, 15), (3, 20))
    assert made.without_below(20) == table((3, 20))
    assert made.without_below(99) == table((3, 99))
    assert made.without_below(15).end_of_epoch(1, 30) == (1, 15)


def test_leaderships_without_records_are_removed_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(epoch_table, "EPOCHS_MAX", 3)
    made = table((1, 0), (2, 10), (3, 10), (4, 20))
    assert made == table((1, 0), (3, 10), (4, 20))
    assert made.end_of_epoch(2, 30) == (1, 10)
    assert made.with_start(5, 30) == table((3, 10), (4, 20), (5, 30))


def test_table_at_limit_keeps_leaderships_without_records(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(epoch_table, "EPOCHS_MAX", 3)
    assert table((1, 0), (2, 10), (3, 10)).end_of_epoch(2, 30) == (2, 10)


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(0, 4)), max_size=12), st.integers(-1, 40))
def test_ends_match_naive_twin(leaderships: list[tuple[int, int]], asked: int) -> None:
    made, records, epoch = EpochTable(), list[int](), 0
    began: list[int] = []
    for skipped, count in leaderships:
        epoch += skipped
        made = made.with_start(epoch, len(records))
        began.append(epoch)
        records += [epoch] * count
    answer = made.end_of_epoch(asked, len(records))
    if asked < 0 or not began or asked > began[-1]:
        assert answer == (-1, -1)
        return
    known = [each for each in began if each <= asked]
    end_offset = sum(1 for record in records if record <= asked)
    assert answer == (known[-1] if known else asked, end_offset)
