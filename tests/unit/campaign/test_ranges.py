"""Tests that sets stored as ranges behave like sets of numbers."""

from random import Random

import pytest

from tests.campaign.topics.ranges import Missing, Numbers, missing


def numbers(*ranges: tuple[int, int]) -> Numbers:
    made = Numbers()
    for start, end in ranges:
        made.add(start, end)
    return made


@pytest.mark.parametrize("seed", range(50))
def test_ranges_behave_like_a_set(seed: int) -> None:
    rng, ranges, plain = Random(seed), Numbers(), set[int]()
    for _ in range(40):
        start = rng.randrange(60)
        added = range(start, start + rng.randrange(1, 9))
        assert ranges.add(added.start, added.stop) == len(plain & set(added))
        plain |= set(added)
        assert [n for start, end in ranges.ranges() for n in range(start, end)] == sorted(plain)
        asked = range(rng.randrange(60), rng.randrange(60, 80))
        assert ranges.count(asked.start, asked.stop) == len(plain & set(asked))
        absent = [n for n in asked if n not in plain]
        assert ranges.first_absent(asked.start, asked.stop) == (absent[0] if absent else None)


def test_ranges_that_touch_are_one() -> None:
    assert list(numbers((5, 8), (0, 5), (8, 9)).ranges()) == [(0, 9)]


def test_missing_numbers_are_found() -> None:
    one = {"a": numbers((0, 10)), "b": numbers((5, 6))}
    assert missing(one, one) == Missing(0, None)
    assert missing(one, {"a": numbers((0, 3), (4, 10)), "b": numbers((0, 9))}) == Missing(
        1, (3, "a")
    )
    assert missing(one, {"a": numbers((0, 10))}) == Missing(1, (5, "b"))
