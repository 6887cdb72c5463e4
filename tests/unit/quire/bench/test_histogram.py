"""The histogram against exact quantiles of sorted lists."""

import json
import math

from hypothesis import given
from hypothesis import strategies as st

from quire.bench.measuring import VALUE_MAX_US, Histogram, bucket_of, greatest_in

VALUES = st.lists(st.integers(0, VALUE_MAX_US) | st.integers(0, 5_000), min_size=1, max_size=200)
SHARES = st.floats(0.0, 1.0)


def recorded(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


def exact(values: list[int], share: float) -> int:
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


@given(VALUES, SHARES)
def test_a_quantile_is_the_exact_one_or_at_most_a_thousandth_above(
    values: list[int], share: float
) -> None:
    wanted = exact(values, share)
    told = recorded(values).quantile_us(share)
    assert wanted <= told <= wanted * 1.001
    assert told <= max(values)


@given(VALUES)
def test_count_sum_and_ends_are_exact(values: list[int]) -> None:
    histogram = recorded(values)
    told = (histogram.count, histogram.sum_us, histogram.min_us, histogram.max_us)
    assert told == (len(values), sum(values), min(values), max(values))


@given(VALUES, VALUES)
def test_merged_histograms_are_one_of_all_values(one: list[int], other: list[int]) -> None:
    merged = recorded(one)
    merged.merge(recorded(other))
    assert merged.as_json() == recorded(one + other).as_json()


@given(st.lists(st.integers(0, VALUE_MAX_US)))
def test_json_gives_the_same_histogram_back(values: list[int]) -> None:
    written = json.loads(json.dumps(recorded(values).as_json()))
    assert Histogram.of_json(written).as_json() == written


@given(st.integers(0, VALUE_MAX_US))
def test_buckets_follow_one_another_without_gap(value: int) -> None:
    bucket = bucket_of(value)
    assert greatest_in(bucket - 1) < value <= greatest_in(bucket)
    assert bucket_of(greatest_in(bucket)) == bucket
    assert bucket_of(greatest_in(bucket) + 1) == bucket + 1


def test_values_out_of_range_count_as_the_nearest_limit() -> None:
    histogram = recorded([-5, VALUE_MAX_US + 1])
    assert (histogram.min_us, histogram.max_us) == (0, VALUE_MAX_US)


def test_an_empty_histogram_returns_zero() -> None:
    assert (Histogram().quantile_us(0.5), Histogram().mean_us) == (0, 0.0)
