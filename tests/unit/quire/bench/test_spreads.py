"""Conditions under which two measurements are called different."""

from hypothesis import given
from hypothesis import strategies as st

from quire.bench.figures import Spread, Verdict, overlaps, spread, verdicts

SAMPLES = st.lists(st.floats(0, 1e6), min_size=1, max_size=9)


@given(SAMPLES)
def test_a_spread_has_the_extremes_and_the_median(values: list[float]) -> None:
    found = spread(values)
    below = sum(value <= found.median for value in values)
    above = sum(value >= found.median for value in values)
    assert (found.low, found.high, found.count) == (min(values), max(values), len(values))
    assert min(below, above) * 2 >= len(values)
    assert spread([4.0, 1.0, 3.0, 2.0]).median == 2.5


@given(SAMPLES, SAMPLES)
def test_overlap_is_symmetric_and_means_a_common_value(a: list[float], b: list[float]) -> None:
    one, other = spread(a), spread(b)
    common = max(one.low, other.low) <= min(one.high, other.high)
    assert overlaps(one, other) == overlaps(other, one) == common


def test_ranges_that_overlap_are_no_difference() -> None:
    found = verdicts(
        {"a": Spread(2, 1, 4, 3), "b": Spread(3, 2, 5, 3), "c": Spread(9, 8, 9, 3)},
        more_is_better=False,
    )
    assert found == {"a": Verdict.BEST, "b": Verdict.NOISE, "c": Verdict.WORSE}


def test_more_may_be_better() -> None:
    found = verdicts({"a": Spread(2, 2, 2, 2), "b": Spread(1, 1, 1, 2)}, more_is_better=True)
    assert found == {"a": Verdict.BEST, "b": Verdict.WORSE}


def test_one_run_proves_no_difference() -> None:
    found = verdicts({"a": Spread(1, 1, 1, 1), "b": Spread(9, 9, 9, 3)}, more_is_better=False)
    assert set(found.values()) == {Verdict.UNKNOWN}
    assert verdicts({}, more_is_better=False) == {}
