"""A short day: `python -m tests.spark.day` with few lines, and what finds its differences."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import RunningCluster
from tests.spark.day.contents import Contents, line_differences, window_differences
from tests.spark.day.course import Day
from tests.spark.day.moments import Moment, QueryState

LINES = [b"%d\ttext %d" % (number, number) for number in range(5_000)]


@pytest.mark.timeout(400)
def test_a_short_day_loses_repeats_and_changes_no_line(
    spark: SparkSession, own_cluster: RunningCluster, tmp_path: Path
) -> None:
    report = Day(spark, own_cluster.metadata, tmp_path).run(lines=20_000, kills=3, seed=5)
    assert report.differences == []
    assert report.lines == 20_001
    assert report.windows == 21
    hit = [each.copy.moment for each in report.kills if each.chosen]
    assert hit == [Moment.BEFORE_PUBLICATION, Moment.BEFORE_RECORD]
    assert len(report.kills) == 3


def contents(lines: list[bytes]) -> Contents:
    found = Contents()
    found.add(lines)
    return found


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        (LINES[:7] + LINES[8:], "lines: 1 lines lost, such as [7]"),
        ([*LINES, LINES[7]], "lines: 1 lines too often or unknown, such as [7]"),
        ([*LINES[:2], LINES[3], LINES[2], *LINES[4:]], "lines: line 3 is at position 2"),
        ([*LINES[:2], b"2\tother", *LINES[3:]], "lines: 1 lines have another text, such as [2]"),
    ],
)
def test_each_difference_of_lines_is_found(found: list[bytes], difference: str) -> None:
    [text] = line_differences("lines", contents(LINES), contents(found))
    assert text.startswith(difference)
    assert line_differences("lines", contents(LINES), contents(list(LINES))) == []


def test_each_difference_of_windows_is_found() -> None:
    windows = contents(LINES).windows()
    rows = [(start, *values) for start, values in windows.items()]
    assert list(windows) == [0, 10_000, 20_000, 30_000]
    assert window_differences(windows, rows) == []
    assert window_differences(windows, rows[1:])[0].startswith("window 0: None in the table")
    assert window_differences(windows, [*rows, rows[2]]) == ["window 20000: 2 rows"]
    changed = [(*rows[0][:3], rows[0][3] + 1), *rows[1:]]
    assert len(window_differences(windows, changed)) == 1


@pytest.mark.parametrize(
    ("state", "moment"),
    [
        (QueryState(-1, -1, -1), Moment.BETWEEN_BATCHES),
        (QueryState(3, 3, 3), Moment.BETWEEN_BATCHES),
        (QueryState(3, 2, 2), Moment.BEFORE_PUBLICATION),
        (QueryState(3, 3, 2), Moment.BEFORE_RECORD),
    ],
)
def test_the_state_of_a_query_shows_its_moment(state: QueryState, moment: Moment) -> None:
    assert state.moment is moment
