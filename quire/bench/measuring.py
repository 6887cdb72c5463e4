"""Computation of one run's figures from its journal, and histograms of latencies.

Invariants: pure; times are seconds from the start of the load; the latency of an append that was
never acknowledged is the time until the run stopped waiting, a lower bound, and such appends are
counted: a configuration that stands still cannot look fast.

Format: whole microseconds from 0 to VALUE_MAX_US. Values below 2,048 have a bucket each. Above,
every power of two is split into 1,024 buckets, so the width of a bucket is at most 1/1,024 of its
values: three significant digits. Count, sum, least and greatest value are exact.

Source: hdrhistogram.org, "HdrHistogram: a high dynamic range histogram".
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Self

from quire.bench.journal import Ack, Journal, Note

WINDOW_S: Final = 0.1
NOTICES: Final = ("BookieSuspected", "BookieDeparted", "BookieUnreachable", "BookieQuarantined")
"""Client events that show that a failure was noticed."""
CHANGE: Final = "EnsembleChanged"
SIGNIFICANT_DIGITS: Final = 3
TAIL_VALUES_MIN: Final = 10
"""Values that must lie above a quantile for it to mean anything."""
VALUE_MAX_US: Final = 3_600_000_000
"""Maximum value, one hour; a greater value is recorded as this."""
_LINEAR_BITS: Final = 11
_LINEAR: Final = 1 << _LINEAR_BITS
_HALF: Final = _LINEAR // 2


class Histogram:
    """Histogram of the values recorded so far.

    A quantile is never below the exact one, and at most 0.1 % above it; merging two histograms
    gives the same result as recording all their values in one.
    """

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
        for second in seconds:
            histogram.record(round(second * 1e6))
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

    def carries(self, share: float) -> bool:
        """Return whether enough values lie above a quantile for it to mean anything."""
        return round(self.count * (1.0 - share), 6) >= TAIL_VALUES_MIN

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


@dataclass(frozen=True, slots=True)
class Latencies:
    """Latencies of all appends that were due."""

    due: tuple[float, ...]
    took: tuple[float, ...]
    """Seconds from when each was due, in the order of `due`."""
    unacknowledged_count: int
    acked_at: tuple[float, ...]
    """Ascending."""

    def histogram(self) -> Histogram:
        """Return the distribution of all latencies."""
        return Histogram.of_seconds(self.took)


@dataclass(frozen=True, slots=True)
class AppendGap:
    """Time without an acknowledged append, within the length of the load."""

    longest_s: float
    windows_s: float
    """The sum of the windows of WINDOW_S in which nothing was acknowledged."""


@dataclass(frozen=True, slots=True)
class MemberChange:
    """A change of an ensemble or of an in-sync set."""

    at: float
    ledger_id: int
    replaced: tuple[str, ...]
    took_s: float | None
    """Seconds from the client's notice of the latest failure of a replaced member to the change;
    None without a notice."""


@dataclass(frozen=True, slots=True)
class AtAckQuorum:
    """Time that sampled acknowledged entries took to reach their complete write quorum, and the
    entries that never reached it, according to their writer.
    """

    sample_count: int
    p50_s: float
    p99_s: float
    max_s: float
    left_count: int
    """Number of entries, not only sampled ones, that were short when their ledger's load ended."""
    left_s: float
    """Seconds from the acknowledgement of the first of them to the end of the load."""


@dataclass(frozen=True, slots=True)
class Zones:
    """A ledger at one moment. Entries 0 to `fully_to` are on the complete write quorum, except
    `short`. Entries up to `last_confirmed` are acknowledged, the rest are not.
    """

    at: float
    ledger_id: int
    fully_to: int
    last_confirmed: int
    last_pushed: int
    short: tuple[tuple[int, int], ...]

    @property
    def at_ack_quorum_count(self) -> int:
        """Number of acknowledged entries that are not known to be on the complete write quorum."""
        stuck = sum(last - first + 1 for first, last in self.short if first <= self.fully_to)
        return self.last_confirmed - self.fully_to + stuck

    @property
    def unconfirmed_count(self) -> int:
        """Number of entries that were sent but not acknowledged."""
        return self.last_pushed - self.last_confirmed


@dataclass(frozen=True, slots=True)
class Slice:
    """The appends that were due in one part of the run."""

    at: float
    count: int
    p50_ms: float
    p99_ms: float
    max_ms: float


def latencies(due: Sequence[float], acks: Sequence[Ack], start: float, end: float) -> Latencies:
    """Join the schedule with the acknowledgements; `end` is when the run stopped waiting."""
    acked: dict[int, float] = {}
    for ack in acks:  # an append that was repeated may occur twice: the first counts
        acked.setdefault(ack.number, ack.at - start)
    took = tuple(acked.get(number, end) - at for number, at in enumerate(due))
    return Latencies(tuple(due), took, len(due) - len(acked), tuple(sorted(acked.values())))


def silence(acked_at: Sequence[float], seconds: float) -> AppendGap:
    """Measure the time without an acknowledged append between 0 and `seconds`."""
    within = [at for at in acked_at if 0.0 <= at < seconds]
    gaps = [after - before for before, after in pairwise([0.0, *within, seconds])]
    window_count = math.ceil(seconds / WINDOW_S - 1e-9)
    busy = {int(at / WINDOW_S) for at in within}
    return AppendGap(max(gaps), (window_count - len(busy)) * WINDOW_S)


def slices(times: Latencies, seconds: float, count: int) -> list[Slice]:
    """Split the run into parts of equal length, by the due times of the appends."""
    parts: list[list[float]] = [[] for _ in range(count)]
    for due, took in zip(times.due, times.took, strict=True):
        parts[min(count - 1, int(due / seconds * count))].append(took)
    made = []
    for number, part in enumerate(parts):
        if part:
            counts = Histogram.of_seconds(part)
            p50, p99 = counts.quantile_us(0.5) / 1e3, counts.quantile_us(0.99) / 1e3
            at = number * seconds / count
            made.append(Slice(at, len(part), p50, p99, counts.max_us / 1e3))
    return made


def changes(journal: Journal, start: float) -> list[MemberChange]:
    """Return every ensemble change since the start of the load."""
    noticed: dict[str, float] = {}
    seen = []
    for note in journal.notes:
        if note["kind"] in NOTICES:
            noticed[note["bookie_id"]] = note["at"]
        elif note["kind"] == CHANGE and note["at"] >= start:
            replaced = tuple(note["replaced"])
            moments = [noticed[member] for member in replaced if member in noticed]
            took = note["at"] - max(moments) if moments else None
            seen.append(MemberChange(note["at"] - start, note["ledger_id"], replaced, took))
    return seen


def at_ack_quorum(journal: Journal, start: float) -> AtAckQuorum:
    """Return how long sampled entries took from their acknowledgement to their last copy, and
    which of all entries of each ledger were left short.
    """
    took = Histogram.of_seconds(
        note["at"] - note["acked_at"]
        for note in journal.of_kind("replicated")
        if note["acked_at"] >= start
    )
    left = [_left_short(journal, note) for note in journal.of_kind("zones_at_end")]
    return AtAckQuorum(
        took.count,
        took.quantile_us(0.5) / 1e6,
        took.quantile_us(0.99) / 1e6,
        took.max_us / 1e6,
        sum(count for count, _ in left),
        max((seconds for _, seconds in left), default=0.0),
    )


def _left_short(journal: Journal, note: Note) -> tuple[int, float]:
    """Return the number of entries of one ledger that were short when its load ended, and the
    seconds since the first acknowledgement among them.
    """
    settled, confirmed = note["fully_to"], note["last_confirmed"]
    ranges = [(first, min(last, settled)) for first, last in note["short"] if first <= settled]
    ranges.append((settled + 1, confirmed))
    count = sum(max(0, last - first + 1) for first, last in ranges)
    acked = [
        ack.at
        for ack in journal.acks
        if ack.ledger_id == note["ledger_id"]
        and any(first <= ack.entry_id <= last for first, last in ranges)
    ]
    return count, note["at"] - min(acked) if acked else 0.0


def acked_per_second(acked_at: Sequence[float], seconds: float) -> tuple[int, ...]:
    """Return the number of appends acknowledged in each second of the run; those acknowledged
    after its end are not counted.
    """
    counts = [0] * math.ceil(seconds)
    for at in acked_at:
        if 0.0 <= at < seconds:
            counts[int(at)] += 1
    return tuple(counts)


def zones(journal: Journal, start: float, at_s: float, *, all_acknowledge: bool) -> Zones | None:
    """Return the zones that were recorded nearest to a time; None if there are none.

    If the ack quorum equals the write quorum, every acknowledged entry is on all of it.
    """
    notes = [*journal.of_kind("zones"), *journal.of_kind("zones_at_end")]
    near = min(notes, key=lambda note: abs(note["at"] - start - at_s), default=None)
    return None if near is None else _zones_of(near, start, all_acknowledge=all_acknowledge)


def _zones_of(note: Note, start: float, *, all_acknowledge: bool) -> Zones:
    short = tuple((first, last) for first, last in note["short"])
    return Zones(
        note["at"] - start,
        note["ledger_id"],
        note["last_confirmed"] if all_acknowledge else note["fully_to"],
        note["last_confirmed"],
        note["last_pushed"],
        short,
    )


def grown(journal: Journal, name: str) -> float:
    """Return the growth of a client's counter between the start and the end of its load; 0 if the
    client was killed before the end.
    """
    before, after = journal.of_kind("load_started"), journal.of_kind("load_ended")
    if not before or not after:
        return 0.0
    return float(after[-1][name]) - float(before[0][name])


def last_acknowledged(acks: Sequence[Ack]) -> list[tuple[int, int]]:
    """Return pairs (ledger id, its last acknowledged entry), ascending."""
    last: dict[int, int] = {}
    for ack in acks:
        last[ack.ledger_id] = max(last.get(ack.ledger_id, -1), ack.entry_id)
    return sorted(last.items())


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
