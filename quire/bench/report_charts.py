"""Charts of a comparison: data in, SVG and a table of the same data out.

Invariants: pure; every point of a picture is a cell of its table; series differ by colour, by dash
and by the name at the line's end. `styles` has the number of each name's colour and dash.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from quire.bench import svg
from quire.bench.injection import InjectionMark
from quire.bench.measuring import AtAckQuorum, Slice, Zones

WIDTH: Final = 860.0
LEFT: Final = 70.0
RIGHT: Final = 40.0
TOP: Final = 14.0
BOTTOM: Final = 44.0
HEIGHT: Final = 340.0
STRIP: Final = 74.0
ROW: Final = 34.0
LABELS: Final = 190.0
LEAST_MS: Final = 0.1
SEGMENT_MIN: Final = 4.0
NAMES: Final = 170.0
"""Width for the names at the ends of curves."""
NAME_HEIGHT: Final = 14.0
HEAD_WIDTH: Final = 400.0
"""Width of a picture of the first screen: it is legible on a telephone."""
HEAD_LABELS: Final = 140.0
HEAD_VALUES: Final = 62.0
HEAD_ROW: Final = 34.0
QUANTILE_END: Final = 4.6
"""Place of the longest append on an axis on which 99.99 % is at 4."""
QUANTILE_TICKS: Final = (
    (0.0, "0"),
    (1.0, "90 %"),
    (2.0, "99 %"),
    (3.0, "99.9 %"),
    (4.0, "99.99 %"),
)


@dataclass(frozen=True, slots=True)
class Table:
    """The same data as text."""

    headings: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best: frozenset[tuple[int, int]] = frozenset()
    """Row and column of the cells with the best values; empty if no cell is better than others."""


@dataclass(frozen=True, slots=True)
class Chart:
    """One picture with its table."""

    picture: str
    table: Table


@dataclass(frozen=True, slots=True)
class Pair:
    """Two values of a configuration: without a fault, and with it."""

    label: str
    rule: str
    """Whose rule it is."""
    calm: float | None
    faulty: float | None


def pairs(
    name: str,
    title: str,
    headings: tuple[str, str],
    rows: Sequence[Pair],
    *,
    unit: str = "",
    digits: int = 0,
) -> Chart:
    """Draw a row for each configuration: a ring where it stands without a fault, a disk with it,
    and the second value as text. Milliseconds are on a log axis.
    """
    is_log = unit == "ms"
    values = [value for row in rows for value in (row.calm, row.faulty) if value is not None]
    least, most = min(values, default=1.0), max(values, default=1.0)
    height = TOP + HEAD_ROW * len(rows) + 26
    end = HEAD_WIDTH - HEAD_VALUES
    if is_log:
        ticks = svg.decades(max(LEAST_MS, least), max(LEAST_MS, most))
    else:
        ticks = svg.steps(max(1.0, most), 4)
    low, high = ticks[0], ticks[-1]
    across = svg.Scale(low, high, HEAD_LABELS, end - 10, is_log=is_log)
    parts = []
    for tick in ticks:
        label = f"{tick:,g} {unit}".rstrip() if tick in (low, high) else f"{tick:,g}"
        parts.append(svg.line(across(tick), TOP, across(tick), height - 24, "grid"))
        parts.append(svg.text(across(tick), height - 8, label, css="tick", anchor="middle"))
    for number, row in enumerate(rows):
        middle = TOP + HEAD_ROW * number + HEAD_ROW / 2
        parts.append(svg.text(0, middle, row.label, css="label"))
        parts.append(svg.text(0, middle + 12, row.rule, css="rule"))
        parts += _pair(row, across, middle)
        shown = _shown(row.calm if row.faulty is None else row.faulty, digits)
        value = f"{shown} {unit}".rstrip()
        parts.append(svg.text(HEAD_WIDTH, middle + 4, value, css="value", anchor="end"))
    cells = [
        (row.label, row.rule, *(_shown(value, digits) for value in (row.calm, row.faulty)))
        for row in rows
    ]
    head = ("configuration", "whose rule", *headings)
    whole = svg.picture(name, HEAD_WIDTH, height, title, f"{title}, by configuration.", *parts)
    return Chart(whole, Table(head, tuple(cells)))


def _pair(row: Pair, across: svg.Scale, middle: float) -> list[str]:
    parts = []
    if row.calm is not None and row.faulty is not None:
        parts.append(svg.line(across(row.calm), middle, across(row.faulty), middle, "link"))
    for value, css in ((row.calm, "calm"), (row.faulty, "faulty")):
        if value is not None:
            place: svg.Attributes = {"cx": across(value), "cy": middle, "r": 5, "class": css}
            parts.append(svg.element("circle", place))
    return parts


def _shown(value: float | None, digits: int) -> str:
    if value is None:
        return "–"
    return f"{value:,.{digits}f}" if value >= 0 else "data lost"


def quantile_curves(
    name: str, series: Mapping[str, Sequence[tuple[float, float]]], styles: Mapping[str, int]
) -> Chart:
    """Draw latency quantiles: each series is (share, milliseconds), ascending, up to share 1."""
    across = svg.Scale(0.0, QUANTILE_END, LEFT, WIDTH - NAMES)
    values = [max(LEAST_MS, ms) for points in series.values() for _, ms in points]
    ticks = svg.decades(min(values, default=1.0), max(values, default=1.0))
    up = svg.Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP, is_log=True)
    parts = _grid_up(up, ticks, "ms")
    for at, label in (*QUANTILE_TICKS, (QUANTILE_END, "longest")):
        parts.append(svg.line(across(at), TOP, across(at), HEIGHT - BOTTOM, "grid"))
        parts.append(svg.text(across(at), HEIGHT - BOTTOM + 18, label, anchor="middle"))
    curves = {
        label: [(across(_quantile_place(share)), up(ms)) for share, ms in points]
        for label, points in series.items()
    }
    parts += _curves(curves, styles)
    shares = sorted({share for points in series.values() for share, _ in points})
    headings = ("configuration", *map(_share_text, shares))
    rows = tuple(
        (label, *(_shown(dict(points).get(share), 2) for share in shares))
        for label, points in series.items()
    )
    text = "Latency in milliseconds, on a log axis, at each quantile, one line per configuration."
    whole = svg.picture(name, WIDTH, HEIGHT, "Latency quantiles", text, *parts)
    return Chart(whole, Table(headings, rows))


def latency_over_time(
    name: str,
    series: Mapping[str, Sequence[Slice]],
    marks: Mapping[str, Sequence[InjectionMark]],
    seconds: float,
    styles: Mapping[str, int],
) -> Chart:
    """Draw p50 and the longest append of each slice of a run. Each configuration has a strip, with
    a line at each fault.
    """
    ticks = svg.steps(seconds)
    across = svg.Scale(0.0, seconds, LABELS, WIDTH - RIGHT)
    values = [max(LEAST_MS, slice_.max_ms) for slices in series.values() for slice_ in slices]
    span = svg.decades(LEAST_MS, max(values, default=1.0))
    height = TOP + STRIP * len(series) + BOTTOM
    parts = []
    for number, (label, slices) in enumerate(series.items()):
        top = TOP + STRIP * number
        up = svg.Scale(span[0], span[-1], top + STRIP - 8, top + 4, is_log=True)
        parts.append(svg.text(4, top + STRIP / 2, label, css="label"))
        for tick in span[1::2]:
            parts.append(svg.line(LABELS, up(tick), WIDTH - RIGHT, up(tick), "grid"))
            label_of_tick = f"{tick:g} ms"
            parts.append(
                svg.text(LABELS - 4, up(tick) + 3, label_of_tick, css="tick", anchor="end")
            )
        for count, mark in enumerate(marks.get(label, ()), 1):
            parts += _fault(count, mark, across, top) if mark.at <= seconds else []
        css = f"series s{styles[label]}"
        parts.append(svg.path([(across(s.at), up(s.max_ms)) for s in slices], css))
        parts.append(svg.path([(across(s.at), up(s.p50_ms)) for s in slices], f"{css} thin"))
    for tick in [mark for mark in ticks if mark <= seconds]:
        label = f"{tick:g} s"
        parts.append(svg.text(across(tick), height - BOTTOM + 16, label, anchor="middle"))
    text = (
        "Milliseconds on a log axis over the time at which appends were due. The thick line is the "
        "longest append of each slice, the thin line is the median. Vertical lines are faults."
    )
    whole = svg.picture(name, WIDTH, height, "Latency over time", text, *parts)
    return Chart(whole, _time_table(series, marks, styles))


def throughput_against_p99(
    name: str,
    series: Mapping[str, Sequence[tuple[float, float, float]]],
    styles: Mapping[str, int],
) -> Chart:
    """Draw a rate sweep: each point is (target rate, achieved rate, p99 in milliseconds)."""
    fastest = max((reached for points in series.values() for _, reached, _ in points), default=1.0)
    ticks_across = svg.steps(fastest)
    across = svg.Scale(0.0, ticks_across[-1], LEFT, WIDTH - NAMES)
    values = [max(LEAST_MS, ms) for points in series.values() for *_, ms in points]
    ticks = svg.decades(min(values, default=1.0), max(values, default=1.0))
    up = svg.Scale(ticks[0], ticks[-1], HEIGHT - BOTTOM, TOP, is_log=True)
    parts = _grid_up(up, ticks, "ms")
    for tick in ticks_across:
        label = f"{tick:,.0f}/s"
        parts.append(svg.text(across(tick), HEIGHT - BOTTOM + 18, label, anchor="middle"))
    rows = []
    curves = {
        label: [(across(reached), up(ms)) for _, reached, ms in points]
        for label, points in series.items()
    }
    parts += _curves(curves, styles)
    for label, points in series.items():
        for asked, reached, ms in points:
            cells = (f"{asked:,.0f}", f"{reached:,.0f}", f"{ms:,.2f}")
            rows.append((label, *cells))
    text = "p99 of the append latency in milliseconds, on a log axis, over appends per second."
    whole = svg.picture(name, WIDTH, HEIGHT, "Throughput against p99", text, *parts)
    return Chart(whole, Table(("configuration", "target/s", "achieved/s", "p99 ms"), tuple(rows)))


def time_at_ack_quorum(
    name: str, series: Mapping[str, AtAckQuorum], styles: Mapping[str, int]
) -> Chart:
    """Draw how long acknowledged entries were short of their write quorum: p50, p99 and longest."""
    height = TOP + ROW * len(series) + BOTTOM
    longest = max((quorum.max_s * 1e3 for quorum in series.values()), default=1.0)
    ticks = svg.decades(LEAST_MS, max(LEAST_MS, longest))
    across = svg.Scale(ticks[0], ticks[-1], LABELS, WIDTH - RIGHT, is_log=True)
    parts = []
    for tick in ticks:
        parts.append(svg.line(across(tick), TOP, across(tick), height - BOTTOM, "grid"))
        label = f"{tick:g} ms"
        parts.append(svg.text(across(tick), height - BOTTOM + 16, label, anchor="middle"))
    rows = []
    for number, (label, quorum) in enumerate(series.items()):
        middle = TOP + ROW * number + ROW / 2
        p50, p99, most = (across(s * 1e3) for s in (quorum.p50_s, quorum.p99_s, quorum.max_s))
        css = f"series s{styles[label]}"
        parts.append(svg.text(4, middle + 4, label, css="label"))
        parts.append(svg.line(p50, middle, most, middle, f"{css} thin"))
        parts.append(svg.line(p50, middle, p99, middle, f"{css} thick"))
        parts += [svg.line(at, middle - 7, at, middle + 7, css) for at in (p50, most)]
        figures = (f"{s * 1e3:,.2f}" for s in (quorum.p50_s, quorum.p99_s, quorum.max_s))
        counts = (f"{quorum.sample_count:,}", f"{quorum.left_count:,}", f"{quorum.left_s:,.2f}")
        rows.append((label, *figures, *counts))
    headings = ("configuration", "p50 ms", "p99 ms", "longest ms", "sampled", "left short", "for s")
    text = "Milliseconds on a log axis from acknowledgement to the last copy: p50, p99, longest."
    whole = svg.picture(name, WIDTH, height, "Time short of the write quorum", text, *parts)
    return Chart(whole, Table(headings, tuple(rows)))


def safety_zones(name: str, series: Mapping[str, Zones], styles: Mapping[str, int]) -> Chart:
    """Draw each ledger as a bar of entries: on the complete write quorum, at the ack quorum only,
    unconfirmed. The bar is to scale, but every zone that is not empty is wide enough to be seen.
    """
    height = TOP + ROW * len(series) + BOTTOM
    parts, rows = [], []
    for number, (label, zones) in enumerate(series.items()):
        top = TOP + ROW * number + 6
        across = svg.Scale(0, max(1, zones.last_pushed + 1), LABELS, WIDTH - RIGHT)
        parts.append(svg.text(4, top + 15, label, css="label"))
        for first, end, css in _segments(zones):
            start, stop = across(first), across(end)
            width = max(SEGMENT_MIN, stop - start)
            parts.append(svg.rectangle(min(start, WIDTH - RIGHT - width), top, width, 20, css))
        stuck = sum(b - a + 1 for a, b in zones.short if a <= zones.fully_to)
        counts = (
            zones.fully_to + 1 - stuck, zones.at_ack_quorum_count, zones.unconfirmed_count
        )  # fmt: skip
        cells = (f"{count:,}" for count in counts)
        rows.append((label, f"{zones.at:.2f}", *cells))
    legend = TOP + ROW * len(series) + 14
    for number, (css, says) in enumerate(_ZONE_WORDS):
        x = LABELS + number * 210
        parts.append(svg.rectangle(x, legend, 16, 14, css))
        parts.append(svg.text(x + 22, legend + 12, says))
    text = "One bar per configuration: the entries of its ledger, from the first to the last sent."
    whole = svg.picture(name, WIDTH, height, "Safety zones of the ledger", text, *parts)
    headings = ("configuration", "at s", *(says for _, says in _ZONE_WORDS))
    return Chart(whole, Table(headings, tuple(rows)))


_ZONE_WORDS: Final = (
    ("zone-full", "on the complete write quorum"),
    ("zone-ack", "at the ack quorum only"),
    ("zone-open", "unconfirmed"),
)


def _segments(zones: Zones) -> list[tuple[int, int, str]]:
    """Return (first, end, style) of each segment; later segments are drawn over earlier ones."""
    full, confirmed, pushed = zones.fully_to + 1, zones.last_confirmed + 1, zones.last_pushed + 1
    whole = [
        (0, full, "zone-full"), (full, confirmed, "zone-ack"), (confirmed, pushed, "zone-open")
    ]  # fmt: skip
    whole += [(first, last + 1, "zone-ack") for first, last in zones.short if first < full]
    return [part for part in whole if part[1] > part[0]]


def _grid_up(up: svg.Scale, ticks: Sequence[float], unit: str) -> list[str]:
    parts = []
    for tick in ticks:
        parts.append(svg.line(LEFT, up(tick), WIDTH - NAMES, up(tick), "grid"))
        parts.append(svg.text(LEFT - 6, up(tick) + 4, f"{tick:g} {unit}", anchor="end"))
    return parts


def _fault(count: int, mark: InjectionMark, across: svg.Scale, top: float) -> list[str]:
    """Draw a fault's line with its number in the order of the run; its name is the tooltip."""
    at = across(mark.at)
    inside = svg.element("title", {}, svg.escaped(f"{mark.at:.2f} s: {mark.label}"))
    place: svg.Attributes = {"x1": at, "y1": top, "x2": at, "y2": top + STRIP - 8, "class": "mark"}
    return [svg.element("line", place, inside), svg.text(at + 3, top + 9, f"{count}", css="tick")]


def _curves(
    curves: Mapping[str, Sequence[tuple[float, float]]], styles: Mapping[str, int]
) -> list[str]:
    """Draw lines with a dot at every point, and names at their ends that do not overlap."""
    parts = []
    for label, places in curves.items():
        parts.append(svg.path(places, f"series s{styles[label]}"))
        for x, y in places:
            dot: svg.Attributes = {"cx": x, "cy": y, "r": 2.5, "class": f"dot s{styles[label]}"}
            parts.append(svg.element("circle", dot))
    ends = sorted((places[-1][1], places[-1][0], name) for name, places in curves.items() if places)
    lowest = HEIGHT - BOTTOM - NAME_HEIGHT * (len(ends) - 1)
    free = 0.0
    for number, (y, x, label) in enumerate(ends):
        at = max(min(y + 4, lowest + NAME_HEIGHT * number), free)
        parts.append(svg.text(x + 6, at, label, css=f"end s{styles[label]}"))
        free = at + NAME_HEIGHT
    return parts


def _quantile_place(share: float) -> float:
    return QUANTILE_END if share >= 1.0 else min(QUANTILE_END, -math.log10(1.0 - share))


def _share_text(share: float) -> str:
    return "longest, ms" if share >= 1.0 else f"{share * 100:g} %"


def _time_table(
    series: Mapping[str, Sequence[Slice]],
    marks: Mapping[str, Sequence[InjectionMark]],
    styles: Mapping[str, int],
) -> Table:
    """Return a table with a row per slice and its faults."""
    moments = sorted({slice_.at for slices in series.values() for slice_ in slices})
    cells = {
        (label, slice_.at): f"{slice_.p50_ms:,.2f} / {slice_.max_ms:,.2f}"
        for label, slices in series.items()
        for slice_ in slices
    }
    rows = []
    for at, after in pairwise([*moments, math.inf]):
        struck = dict.fromkeys(
            mark.label for sequence in marks.values() for mark in sequence if at <= mark.at < after
        )
        figures = (cells.get((label, at), "–") for label in series)
        rows.append((f"{at:.2f}", *figures, "; ".join(struck)))
    names = (f"{label}, p50 / longest ms" for label in series)
    return Table(("from s", *names, "faults"), tuple(rows))
