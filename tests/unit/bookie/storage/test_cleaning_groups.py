"""Where the runs of a cleaning are divided into groups and into reads: at exactly which size."""

import pytest

from bookie.log import records
from bookie.log.records import OFFSET_MAX
from bookie.storage import cleaning

Run = tuple[int, int, int, int]
MAX = cleaning.GROUP_BYTES_MAX
FAR = 5_000_000_000


def runs_of(*sizes: int, start: int = 0) -> list[Run]:
    """Return runs one after the other in one segment."""
    runs = []
    for number, size in enumerate(sizes):
        runs.append((number, number, records.lsn_of(1, start), size))
        start += size
    return runs


@pytest.mark.parametrize(
    ("sizes", "groups"),
    [
        ((), []),
        ((MAX,), [1]),
        ((MAX + 1,), [1]),
        ((MAX - 1, 1), [2]),
        ((MAX, 1), [1, 1]),
        ((1, MAX), [1, 1]),
        ((MAX, 1, MAX - 1), [1, 2]),
        ((MAX, 1, MAX - 1, 1), [1, 2, 1]),
        ((10, 20, 30), [3]),
    ],
)
def test_a_group_has_at_most_the_maximum_size(sizes: tuple[int, ...], groups: list[int]) -> None:
    runs = runs_of(*sizes, start=FAR % OFFSET_MAX)
    found = list(cleaning.group_runs(runs))
    assert [len(group) for group in found] == groups
    assert [run for group in found for run in group] == runs


def sizes_of(runs: list[Run]) -> list[int]:
    return [piece.size for piece in cleaning.pieces_of(runs)]


def test_a_gap_of_the_maximum_size_is_read_too() -> None:
    gap = cleaning.GAP_BYTES_MAX
    first = (0, 0, records.lsn_of(1, 0), 100)
    for extra, sizes in ((0, [100 + gap + 50]), (1, [100, 50])):
        after = (1, 1, records.lsn_of(1, 100 + gap + extra), 50)
        assert sizes_of([first, after]) == sizes
    third = (2, 2, records.lsn_of(1, 150 + 2 * gap), 50)
    assert sizes_of([first, (1, 1, records.lsn_of(1, 100 + gap), 50), third]) == [200 + 2 * gap]


def test_a_piece_has_at_most_the_maximum_size() -> None:
    whole = cleaning.PIECE_BYTES_MAX
    assert sizes_of(runs_of(whole - 10, 10)) == [whole]
    assert sizes_of(runs_of(whole - 10, 11)) == [whole - 10, 11]


def test_a_piece_has_at_most_the_maximum_number_of_runs() -> None:
    count = cleaning.PIECE_RUNS_MAX
    assert sizes_of(runs_of(*[1] * count)) == [count]
    assert sizes_of(runs_of(*[1] * (count + 1))) == [count, 1]


def test_a_piece_is_in_one_segment() -> None:
    last = (0, 0, records.lsn_of(1, OFFSET_MAX - 99), 100)
    first = (1, 1, records.lsn_of(2, 0), 50)
    assert last[2] + last[3] == first[2]
    assert sizes_of([last, first]) == [100, 50]
