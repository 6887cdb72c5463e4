"""A short day: `python -m tests.spark.day` with few lines, and what finds its differences."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.spark.conftest import RunningCluster
from tests.spark.day.contents import Contents, line_differences, window_differences
from tests.spark.day.course import Day
from tests.spark.day.moments import Moment, QueryState
from tests.spark.day.real_lines import LINE_BYTES_MAX, numbered_files

LINES = [b"%d\ttext %d" % (number, number) for number in range(5_000)]


@pytest.mark.timeout(1_200)
def test_a_short_day_loses_repeats_and_changes_no_line(
    spark: SparkSession, cluster: RunningCluster, tmp_path: Path
) -> None:
    """Each driver costs a start of Spark, so there is one for each chosen moment. Random moments
    are those of `test_exactly_once` and of longer days.
    """
    report = Day(spark, cluster.metadata, tmp_path).run(lines=20_000, kills=2, seed=5)
    assert report.differences == []
    assert report.lines == 20_001
    assert report.windows == 21
    hit = [kill.copy.moment for kill in report.kills]
    assert hit == [Moment.BEFORE_PUBLICATION, Moment.BEFORE_RECORD]


@pytest.mark.parametrize(("lines", "kills"), [(11, 3), (20, -1)])
def test_kills_without_enough_lines_are_refused(
    spark: SparkSession, tmp_path: Path, lines: int, kills: int
) -> None:
    with pytest.raises(ValueError, match=f"{kills} kills need"):
        Day(spark, "zk://127.0.0.1:1/none", tmp_path).run(lines, kills, seed=1)


def test_files_of_a_day_repeat_short_input_and_end_with_the_closing_line(tmp_path: Path) -> None:
    given = tmp_path / "given.txt"
    given.write_bytes(b"one\r\ntwo\rthree\n\xff\tfour")
    links = numbered_files(tmp_path, 7, 3, given)
    texts = [b"".join(path.read_bytes() for path in link) for link in links]
    assert texts == [
        b"0\tone\n1\ttwothree\n2\t\xff\tfour\n",
        b"3\tone\n4\ttwothree\n5\t\xff\tfour\n",
        b"6\tone\n",
        b"2007\tend of the day\n",
    ]
    given.write_bytes(b"")
    with pytest.raises(ValueError, match="no lines: give another file"):
        numbered_files(tmp_path, 7, 3, given)
    given.write_bytes(b"x" * (LINE_BYTES_MAX + 1))
    with pytest.raises(ValueError, match="line 0 has"):
        numbered_files(tmp_path, 7, 3, given)


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
