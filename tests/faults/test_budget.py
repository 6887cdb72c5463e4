"""Tests of a campaign's summary: complete, incomplete and skipped runs."""

import pytest

from tests.faults.__main__ import worst
from tests.faults.budget import EXIT_BROKEN, EXIT_NOT_WHOLE, SMALL, Budget, Summary

WANTED = 10


def summary(cycles: int, seconds: float | None, broken: str = "", skipped: str = "") -> Summary:
    """Return the printed summary of a campaign that did this many cycles."""
    made = Summary("example", Budget(SMALL, 1, seconds), WANTED, cycles, skipped=skipped)
    made.violations += [broken] if broken else []
    return made


@pytest.mark.parametrize(
    ("made", "result", "is_well", "status"),
    [
        (summary(10, None), "clean and whole", True, 0),
        (summary(10, 5.0), "clean and whole", True, 0),
        (summary(4, 5.0), "clean, but only 4 of 10", True, 0),
        (summary(4, None), "clean, but only 4 of 10", True, EXIT_NOT_WHOLE),
        (summary(0, 5.0), "clean, but only 0 of 10", True, 0),
        (summary(0, None, skipped="no fuse"), "skipped, 0 of 10", False, EXIT_NOT_WHOLE),
        (summary(0, 5.0, skipped="no fuse"), "skipped, 0 of 10", False, EXIT_NOT_WHOLE),
        (summary(10, None, "lost"), "broken promises and whole", False, EXIT_BROKEN),
        (summary(4, 5.0, "lost"), "broken promises, but only 4 of 10", False, EXIT_BROKEN),
    ],
)
def test_summary_reports_the_result_and_the_work_done(
    made: Summary, result: str, *, is_well: bool, status: int
) -> None:
    assert (made.result, made.is_well, made.status) == (result, is_well, status)
    printed = made.as_json()
    assert (printed["result"], printed["is_well"]) == (result, is_well)
    assert printed["is_whole"] is (made.cycles == WANTED)


def test_a_broken_promise_outweighs_a_skip() -> None:
    well, skipped, broken = summary(10, None), summary(0, None, "", "x"), summary(1, None, "lost")
    assert worst([well, well]) == 0
    assert worst([well, skipped]) == EXIT_NOT_WHOLE
    assert worst([broken, skipped, well]) == EXIT_BROKEN
