"""Spread of repeated measurements, and comparison of two spreads.

Leaves measuring to `quire.bench.compare.figures`.

Invariants: pure; two measurements are never called different if their ranges overlap, or if one of
them has a single value.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Spread:
    """Median, least and greatest value of repetitions."""

    median: float
    low: float
    high: float
    count: int


class Verdict(StrEnum):
    """Comparison of a configuration with the best one of its scenario."""

    BEST = "best"
    NOISE = "no difference beyond noise"
    WORSE = "worse"
    UNKNOWN = "one run: spread unknown"


def spread(values: Sequence[float]) -> Spread:
    """Summarise repetitions; there must be at least one."""
    assert values, "a spread needs a value"
    ordered = sorted(values)
    count = len(ordered)
    middle = (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
    return Spread(middle, ordered[0], ordered[-1], count)


def overlaps(one: Spread, other: Spread) -> bool:
    """Return whether two ranges touch or overlap."""
    return one.low <= other.high and other.low <= one.high


def verdicts(spreads: Mapping[str, Spread], *, more_is_better: bool) -> dict[str, Verdict]:
    """Compare each spread with the one that has the best median."""
    if not spreads:
        return {}
    sign = -1.0 if more_is_better else 1.0
    best = min(spreads, key=lambda name: sign * spreads[name].median)
    return {name: _verdict(name, best, spreads) for name in spreads}


def _verdict(name: str, best: str, spreads: Mapping[str, Spread]) -> Verdict:
    one, other = spreads[name], spreads[best]
    if one.count == 1 or other.count == 1:
        return Verdict.UNKNOWN
    if name == best:
        return Verdict.BEST
    return Verdict.NOISE if overlaps(one, other) else Verdict.WORSE
