"""Catalogue of the compared figures: name, unit, and where a run has the value; spreads of repeated
runs, and their comparison.

Invariants: pure; two measurements are never called different if their ranges overlap, or if one of
them has a single value.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from quire.bench.results import RunResult


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


@dataclass(frozen=True, slots=True)
class Figure:
    """A number that every run has, or None where it does not apply."""

    name: str
    title: str
    unit: str
    of: Callable[[RunResult], float | None]
    more_is_better: bool = False
    digits: int = 1
    is_judged: bool = True
    """Whether one end is better, so that values may be called best."""
    is_exact: bool = False
    """Whether it follows from the configuration, so that one run decides."""


def _quantile_ms(share: float) -> Callable[[RunResult], float | None]:
    def quantile_ms(run: RunResult) -> float | None:
        return run.latency.quantile_us(share) / 1e3 if run.latency.carries(share) else None

    return quantile_ms


def _longest_change_ms(run: RunResult) -> float | None:
    known = [change.took_s for change in run.changes if change.took_s is not None]
    return max(known) * 1e3 if known else None


def _fragment_count(run: RunResult) -> float:
    """Count the fragments. Every change of a ledger's members begins one, also a change that only
    adds members.
    """
    return sum(safety.fragment_count for safety in run.safety)


def _copy_count(run: RunResult) -> float | None:
    return max((safety.write_quorum for safety in run.safety), default=None)


def _caught_up_count(run: RunResult) -> float:
    return run.events.get("MemberCaughtUp", 0)


def _first_ack_s(run: RunResult) -> float | None:
    return run.takeover.first_ack_s if run.takeover else None


def _closed_s(run: RunResult) -> float | None:
    return run.takeover.closed_s if run.takeover else None


FIGURES: Final = (
    Figure("p50_ms", "p50", "ms", _quantile_ms(0.5), digits=2),
    Figure("p99_ms", "p99", "ms", _quantile_ms(0.99)),
    Figure("p999_ms", "p99.9", "ms", _quantile_ms(0.999)),
    Figure("max_ms", "longest append", "ms", lambda run: run.latency.max_us / 1e3),
    Figure(
        "silence_longest_s", "longest silence", "s", lambda run: run.silence.longest_s, digits=3
    ),
    Figure("silence_s", "silent 100 ms windows", "s", lambda run: run.silence.windows_s),
    Figure(
        "unacknowledged", "never acknowledged", "appends", lambda run: run.unacknowledged_count,
        digits=0,
    ),
    Figure("failed", "failed and repeated", "appends", lambda run: run.failed_appends, digits=0),
    Figure(
        "refused", "refused: too few replicas in sync", "times", lambda run: run.refused_count,
        digits=0,
    ),
    Figure("caught_up", "members that caught up", "", _caught_up_count, digits=0, is_judged=False),
    Figure("fragments", "fragments stored", "", _fragment_count, digits=0, is_judged=False),
    Figure(
        "changes", "replacements and departures", "", lambda run: len(run.changes), digits=0,
        is_judged=False,
    ),
    Figure("change_ms", "longest change, since failure was noticed", "ms", _longest_change_ms),
    Figure(
        "at_aq_p50_ms", "time short of WQ, p50", "ms", lambda run: run.at_ack_quorum.p50_s * 1e3
    ),
    Figure(
        "at_aq_max_s", "time short of WQ, longest", "s", lambda run: run.at_ack_quorum.max_s,
        digits=3,
    ),
    Figure(
        "left", "left short, according to the writer", "entries",
        lambda run: run.at_ack_quorum.left_count, digits=0,
    ),
    Figure(
        "left_s", "left short for", "s", lambda run: run.at_ack_quorum.left_s, digits=3
    ),
    Figure("short", "short of WQ at the end", "entries", lambda run: run.short_count, digits=0),
    Figure("lost", "out of reach at the end", "entries", lambda run: run.lost_count, digits=0),
    Figure("copies", "copies of each entry", "", _copy_count, digits=0, is_exact=True),
    Figure(
        "losable", "bookies that may be lost", "", lambda run: run.losable_bookies,
        more_is_better=True, digits=0,
    ),
    Figure(
        "recoverable", "members that may be away at recovery", "",
        lambda run: run.recoverable_without, more_is_better=True, digits=0,
    ),
    Figure(
        "written", "written to logs", "bytes/entry", lambda run: run.written_bytes_per_entry,
        digits=0,
    ),
    Figure("sent", "sent", "bytes/entry", lambda run: run.sent_bytes_per_entry, digits=0),
    Figure(
        "late_ms", "load generator late by", "ms", lambda run: run.late_ms_max, is_judged=False
    ),
    Figure("closed_s", "takeover: closed after", "s", _closed_s, digits=3),
    Figure("first_ack_s", "takeover: appends again after", "s", _first_ack_s, digits=3),
)  # fmt: skip
BY_NAME: Final = {figure.name: figure for figure in FIGURES}


def summarise(runs: Sequence[RunResult], figure: Figure) -> Spread | None:
    """Return the spread of a figure over repetitions; None if no run has it."""
    values = [value for value in map(figure.of, runs) if value is not None]
    return spread(values) if values else None


def show(value: Spread | None, digits: int) -> str:
    """Return a spread as text for tables: the median, and the range if there are several values."""
    if value is None:
        return "–"
    if value.count == 1 or value.low == value.high:
        return f"{value.median:,.{digits}f}"
    return f"{value.median:,.{digits}f} ({value.low:,.{digits}f}–{value.high:,.{digits}f})"
