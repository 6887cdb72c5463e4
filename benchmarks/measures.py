"""Computations for the benchmarks: percentiles, orders and schedules.

Leaves taking the samples to the scripts, printing them to `benchmarks.report`, and medians with
ranges to `quire.bench.figures`.

Invariants: pure; percentiles are exact (nearest rank over every sample, without buckets).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeVar

Item = TypeVar("Item")

MEGABYTE: Final = 1_000_000


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest sample that at least `share` (0 to 1) of all samples do not exceed.

    `ordered` must be sorted and not empty.
    """
    assert ordered, "a percentile needs a sample"
    assert 0.0 <= share <= 1.0
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def latency_figures(seconds: Sequence[float]) -> dict[str, float]:
    """Return the usual percentiles of latencies, in milliseconds."""
    ordered = sorted(seconds)
    if not ordered:
        return {}
    shares = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
    return {name: percentile(ordered, share) * 1e3 for name, share in shares.items()}


def interleaved(cases: Sequence[Item], repetitions: int) -> Iterator[tuple[int, Item]]:
    """Yield (repetition, case) as A B C, B C A, ...: a slow phase of the machine affects all cases
    equally, and no case is always the first after a pause.
    """
    for repetition in range(repetitions):
        start = repetition % len(cases)
        for case in (*cases[start:], *cases[:start]):
            yield repetition, case


def arrivals(per_second: float, seconds: float) -> Iterator[float]:
    """Yield the times, from 0, at which an open loop sends. They are fixed in advance, whatever the
    system under test does, so that a stall counts for every request that it held up.
    """
    assert per_second > 0
    for number in range(int(per_second * seconds)):
        yield number / per_second


def megabytes_per_second(size: int, seconds: float) -> float:
    """Return a rate in 10^6 bytes per second."""
    return size / seconds / MEGABYTE


def amplification(written_bytes: int | None, payload_bytes: int) -> float | None:
    """Return bytes written to the disk per payload byte; None if the system has no figure."""
    if written_bytes is None or payload_bytes <= 0:
        return None
    return written_bytes / payload_bytes


def is_met(value: float, wanted: Mapping[str, float]) -> bool:
    """Return whether a figure is within its bounds: `at_least`, `at_most`, or both."""
    return wanted.get("at_least", -math.inf) <= value <= wanted.get("at_most", math.inf)


def batch_bytes(entry_bytes: int, entry_count: int, *, frame_bytes: int, header_bytes: int) -> int:
    """Return the wire size of a batch: frame and batch headers, 8 bytes and a payload per entry."""
    return frame_bytes + header_bytes + entry_count * (8 + entry_bytes)


def quorum_reached(positions: Sequence[int], ack_quorum: int) -> int:
    """Return the position that at least `ack_quorum` of several replicas have reached."""
    return sorted(positions, reverse=True)[ack_quorum - 1]
