"""Tests of the sample; they leave the limit's boundary out."""

import pytest

from tests.mutation.sample.ledger_of_sums import LoudSums, Sums, halvings

EARLY = halvings(8)
"""A result that was cached while this module was imported."""


def test_numbers_are_added() -> None:
    sums = Sums()
    assert sums.add(2)
    assert sums.add(3)
    assert sums.total == 5


@pytest.mark.parametrize("number", [0, -1, 1000])
def test_other_numbers_are_refused(number: int) -> None:
    assert not Sums().add(number)


def test_calls_are_counted() -> None:
    sums = LoudSums()
    assert sums.add_loudly(1, times=2)
    assert (sums.calls, sums.total) == (1, 2)


def test_some_number_is_halved() -> None:
    """Caches the result that the next test looks at."""
    assert halvings(8) >= 0


def test_halvings() -> None:
    assert halvings(8) == 3
