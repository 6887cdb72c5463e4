"""Latency of appends over time, one strip for each bookie, with lines at events. Pure.

Leaves which bookies and events are drawn to `quire.console.latency.ledger_latency`.

Invariants: all strips share one axis of time and one logarithmic axis of milliseconds; a time
without an answer is a crossed box, a time without appends is empty.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from quire.console.latency.append_ring import Sample

WIDTH: Final = 1_000
STRIP_HEIGHT: Final = 64
NAME_HEIGHT: Final = 20
LEAST_MS: Final = 1.0
MOST_MS: Final = 10_000.0
TICKS_MS: Final = (1, 100, 10_000)
GAP_MS: Final = 25_000
"""Time between two samples above which nothing is drawn between them."""
BOX: Final = 6.0


@dataclass(frozen=True, slots=True)
class Mark:
    """One event of the list beside the drawing."""

    number: int
    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class Strip:
    """The samples of one bookie."""

    name: str
    samples: Sequence[Sample]


def latency_strips(
    strips: Sequence[Strip], marks: Sequence[Mark], since_ms: int, until_ms: int
) -> Markup:
    """Return the drawing."""
    span = max(1, until_ms - since_ms)

    def across(at_ms: int) -> float:
        return (at_ms - since_ms) / span * WIDTH

    height = len(strips) * (STRIP_HEIGHT + NAME_HEIGHT)
    parts = []
    for number, strip in enumerate(strips):
        top = number * (STRIP_HEIGHT + NAME_HEIGHT) + NAME_HEIGHT
        parts.append(_frame(strip.name, top))
        for run in _runs(strip.samples):
            places = [(across(at), top + _down(us)) for at, us in run]
            parts.append(_line(places))
        away = [each.at_ms for each in strip.samples if each.p99_us is None]
        parts += [_crossed(min(across(at), WIDTH - BOX), top) for at in away]
    for mark in marks:
        at = across(mark.at_ms)
        parts.append(
            Markup(
                '<g><path class="mark" d="M{0:.1f} 0V{1}"></path><text class="head" x="{2:.1f}"'
                ' y="12">{3}</text><title>{4}</title></g>'
            ).format(at, height, min(at + 4, WIDTH - 16), mark.number, mark.text)
        )
    return Markup(
        '<svg viewBox="0 0 {} {}" class="map latency" role="img"'
        ' aria-labelledby="latency-title latency-text">'
        '<title id="latency-title">Latency of appends at the bookies</title>'
        '<desc id="latency-text">p99 of appends, from 1 ms at the bottom to 10 s at the top of each'
        " strip, over time from left to right. Numbered lines are events.</desc>{}</svg>"
    ).format(WIDTH, height, Markup("").join(parts))


def _frame(name: str, top: int) -> Markup:
    lines = Markup("").join(
        Markup('<path class="tick" d="M0 {0:.1f}H{1}"></path><text class="head" x="{2}" y="{3:.1f}"'
               ' text-anchor="end">{4:,} ms</text>').format(
            y := top + _down(tick * 1_000), WIDTH, WIDTH - 4, y - 2 if tick > 1 else y - 4, tick
        )
        for tick in TICKS_MS
    )  # fmt: skip
    return Markup('<text x="4" y="{}">{}</text>{}').format(top - 5, name, lines)


def _runs(samples: Sequence[Sample]) -> list[list[tuple[int, int]]]:
    """Split the samples into runs with appends, without a gap."""
    runs: list[list[tuple[int, int]]] = [[]]
    for at_ms, p99_us in samples:
        if not p99_us:
            runs.append([])
            continue
        if runs[-1] and at_ms - runs[-1][-1][0] > GAP_MS:
            runs.append([])
        runs[-1].append((at_ms, p99_us))
    return [each for each in runs if each]


def _line(places: Sequence[tuple[float, float]]) -> Markup:
    if len(places) == 1:
        return Markup('<circle class="point" cx="{:.1f}" cy="{:.1f}" r="2.5"></circle>').format(
            *places[0]
        )
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    return Markup('<path class="curve" d="M{}"></path>').format(steps)


def _crossed(x: float, top: int) -> Markup:
    return Markup(
        '<path class="away" d="M{0:.1f} {1}h{2}v{3}h-{2}zL{4:.1f} {5}"><title>no answer</title>'
        "</path>"
    ).format(x, top, BOX, STRIP_HEIGHT, x + BOX, top + STRIP_HEIGHT)


def _down(p99_us: int) -> float:
    """Return the distance from the top of a strip."""
    ms = min(max(p99_us / 1_000, LEAST_MS), MOST_MS)
    share = math.log10(ms / LEAST_MS) / math.log10(MOST_MS / LEAST_MS)
    return STRIP_HEIGHT * (1 - share)
