"""Speed of repair, and the time left."""

import pytest

from quire.repair.publishing import Progress


def test_the_rate_is_that_of_the_last_minute() -> None:
    progress = Progress()
    for second in range(120):
        progress.add(10, float(second))
    assert progress.rate(119.0) == pytest.approx(10.0, rel=0.02)
    assert progress.left_s(500, 119.0) == pytest.approx(50.0, rel=0.02)


def test_the_time_left_is_unknown_while_nothing_was_done_for_a_minute() -> None:
    progress = Progress()
    assert progress.left_s(5, 0.0) is None
    progress.add(10, 0.0)
    assert progress.left_s(5, 59.0) is not None
    assert progress.left_s(5, 60.0) is None
    assert progress.rate(60.0) == 0.0


def test_nothing_left_takes_no_time() -> None:
    assert Progress().left_s(0, 0.0) == 0.0


def test_a_pause_does_not_lower_the_rate_for_ever() -> None:
    progress = Progress()
    progress.add(100, 0.0)
    progress.add(100, 1_000.0)
    assert progress.rate(1_010.0) == pytest.approx(10.0)


def test_the_rate_of_the_first_second_is_what_was_done() -> None:
    progress = Progress()
    progress.add(0, 0.0)
    assert progress.rate(0.0) == 0.0
    progress.add(100, 0.0)
    assert [progress.rate(each) for each in (0.0, 0.5, 1.0, 2.0)] == [100.0, 100.0, 100.0, 50.0]
