"""Log-linear (HDR) histogram of latencies: the width of the buckets grows with the value.

Leaves measuring to others. The maintained package for it (hdrhistogram) is not used: it installs
setuptools and pbr, has no types, and does far more than is needed here.

Format: whole microseconds from 0 to VALUE_MAX_US. Values below 2,048 have a bucket each. Above,
every power of two is split into 1,024 buckets, so the width of a bucket is at most 1/1,024 of its
values: three significant digits. Count, sum, least and greatest value are exact.

Invariants: a quantile is never below the exact one, and at most 0.1 % above it; merging two
histograms gives the same result as recording all their values in one.

Source: hdrhistogram.org, "HdrHistogram: a high dynamic range histogram".
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, Self

SIGNIFICANT_DIGITS: Final = 3
VALUE_MAX_US: Final = 3_600_000_000
"""Maximum value, one hour; a greater value is recorded as this."""
_LINEAR_BITS: Final = 11
_LINEAR: Final = 1 << _LINEAR_BITS
_HALF: Final = _LINEAR // 2


class Histogram:
    """Histogram of the values recorded so far."""

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self.count = 0
        self.sum_us = 0
        self.min_us = 0
        self.max_us = 0

    @classmethod
    def of_seconds(cls, seconds: Iterable[float]) -> Self:
        """Return a histogram of durations."""
        histogram = cls()
        for each in seconds:
            histogram.record(round(each * 1e6))
        return histogram

    @classmethod
    def of_json(cls, values: Mapping[str, Any]) -> Self:
        """Read what `as_json` returned."""
        histogram = cls()
        for greatest, count in values["buckets"]:
            histogram.record(greatest, count)
        histogram.sum_us = values["sum"]
        histogram.min_us, histogram.max_us = values["min"], values["max"]
        return histogram

    def record(self, value_us: int, count: int = 1) -> None:
        """Record a value; a negative one (two clocks that differ) counts as 0."""
        assert count > 0
        value = min(max(0, value_us), VALUE_MAX_US)
        bucket = bucket_of(value)
        self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.min_us = min(self.min_us, value) if self.count else value
        self.max_us = max(self.max_us, value)
        self.count += count
        self.sum_us += value * count

    def merge(self, other: "Histogram") -> None:
        """Add all values of another histogram."""
        if not other.count:
            return
        for greatest, count in other.buckets():
            bucket = bucket_of(greatest)
            self._counts[bucket] = self._counts.get(bucket, 0) + count
        self.min_us = min(self.min_us, other.min_us) if self.count else other.min_us
        self.max_us = max(self.max_us, other.max_us)
        self.count += other.count
        self.sum_us += other.sum_us

    @property
    def mean_us(self) -> float:
        """The mean; 0 without values."""
        return self.sum_us / self.count if self.count else 0.0

    def quantile_us(self, share: float) -> int:
        """Return a value that at least `share` (0 to 1) of all values do not exceed: the greatest
        value of its bucket; 0 without values.
        """
        assert 0.0 <= share <= 1.0
        rank = max(1, math.ceil(share * self.count))
        passed = 0
        for bucket in sorted(self._counts):
            passed += self._counts[bucket]
            if passed >= rank:
                return min(greatest_in(bucket), self.max_us)
        return 0

    def buckets(self) -> Iterator[tuple[int, int]]:
        """Yield (greatest value of a bucket, number of values in it), ascending."""
        for bucket in sorted(self._counts):
            yield min(greatest_in(bucket), VALUE_MAX_US), self._counts[bucket]

    def as_json(self) -> dict[str, Any]:
        """Return the histogram as JSON values."""
        return {
            "unit": "us",
            "significantDigits": SIGNIFICANT_DIGITS,
            "count": self.count,
            "sum": self.sum_us,
            "min": self.min_us,
            "max": self.max_us,
            "buckets": [list(pair) for pair in self.buckets()],
        }


def bucket_of(value: int) -> int:
    """Return the number of the bucket that a value falls into."""
    if value < _LINEAR:
        return value
    shift = value.bit_length() - _LINEAR_BITS
    return shift * _HALF + (value >> shift)


def greatest_in(bucket: int) -> int:
    """Return the greatest value that falls into a bucket."""
    if bucket < _LINEAR:
        return bucket
    shift = bucket // _HALF - 1
    return ((bucket - shift * _HALF + 1) << shift) - 1
