"""Pictures are well-formed and named, and their tables hold every point."""

import xml.etree.ElementTree as ET
from dataclasses import replace
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.bench import report_charts as charts
from quire.bench import svg
from quire.bench.injection import InjectionMark
from quire.bench.measuring import AtAckQuorum, Slice, Zones
from quire.bench.report_charts import Chart

STYLES = {"one": 0, "two <&>": 1}
MILLISECONDS = st.floats(0.0, 1e6)


def check(chart: Chart, points: list[str]) -> ET.Element:
    root = ET.fromstring(chart.picture)
    named = [root.find("title"), root.find("desc")]
    assert all(element is not None and element.text for element in named)
    ids = [element.get("id") for element in named if element is not None]
    assert root.get("aria-labelledby") == " ".join(str(each) for each in ids)
    cells = list(chain.from_iterable(chart.table.rows))
    assert all(any(point in cell for cell in cells) for point in points)
    assert all(len(row) == len(chart.table.headings) for row in chart.table.rows)
    return root


def drawn(root: ET.Element, css: str) -> list[ET.Element]:
    return [element for element in root.iter() if css in element.get("class", "").split()]


@given(
    st.lists(MILLISECONDS, min_size=3, max_size=3), st.lists(MILLISECONDS, min_size=3, max_size=3)
)
def test_quantile_curves(one: list[float], two: list[float]) -> None:
    shares = (0.5, 0.99, 1.0)
    series = {
        name: list(zip(shares, sorted(values), strict=True))
        for name, values in zip(STYLES, (one, two), strict=True)
    }
    chart = charts.quantile_curves("q", series, STYLES)
    root = check(chart, [f"{ms:,.2f}" for ms in one + two])
    assert [len(drawn(root, f"s{n}")) for n in (0, 1)] == [5, 5]  # a line, three dots, a name
    ends = drawn(root, "end")
    assert sorted(str(end.text) for end in ends) == sorted(STYLES)
    places = [float(end.get("y", "0")) for end in ends]
    assert abs(places[0] - places[1]) >= charts.NAME_HEIGHT - 0.11  # rounded to a tenth
    assert chart.table.headings == ("configuration", "50 %", "99 %", "longest, ms")


@given(st.lists(st.tuples(MILLISECONDS, MILLISECONDS), min_size=1, max_size=9))
def test_latency_over_time(values: list[tuple[float, float]]) -> None:
    slices = [
        Slice(number * 0.5, 1, min(pair), max(pair), max(pair))
        for number, pair in enumerate(values)
    ]
    marks = {"one": [InjectionMark(0.1, "bookie 1 killed (-9)")]}
    series = {"one": slices, "two <&>": slices[:1]}
    chart = charts.latency_over_time("t", series, marks, 0.5 * len(slices), STYLES)
    points = [f"{each.p50_ms:,.2f} / {each.max_ms:,.2f}" for each in slices]
    root = check(chart, [*points, "bookie 1 killed (-9)"])
    assert len(drawn(root, "mark")) == 1
    assert len(chart.table.rows) == len(slices)


def test_a_fault_is_only_in_the_row_of_its_slice() -> None:
    slices = [Slice(at, 1, 1.0, 1.0, 1.0) for at in (0.0, 0.5, 1.0)]
    marks = {"one": [InjectionMark(0.5, "x"), InjectionMark(1.7, "y")]}
    chart = charts.latency_over_time("t", {"one": slices}, marks, 1.5, STYLES)
    lines = drawn(check(chart, ["x", "y"]), "mark")
    assert [line.findtext("title") for line in lines] == ["0.50 s: x"]  # y came after the load
    assert [row[-1] for row in chart.table.rows] == ["", "x", "y"]


@given(st.lists(st.tuples(st.floats(1, 1e5), st.floats(0, 1e5), MILLISECONDS), max_size=5))
def test_throughput_against_p99(points: list[tuple[float, float, float]]) -> None:
    chart = charts.throughput_against_p99("s", {"one": points, "two <&>": []}, STYLES)
    told = [f"{asked:,.0f}" for asked, _, _ in points]
    told += [f"{reached:,.0f}" for _, reached, _ in points]
    check(chart, told + [f"{ms:,.2f}" for *_, ms in points])


@given(st.lists(st.floats(0, 1e3), min_size=3, max_size=3).map(sorted), st.integers(0, 10**6))
def test_time_at_ack_quorum(seconds: list[float], left: int) -> None:
    p50, p99, longest = seconds
    each = AtAckQuorum(10**6, p50, p99, longest, left, 1.5 * left)
    chart = charts.time_at_ack_quorum("a", {"one": each, "two <&>": each}, STYLES)
    check(chart, [*(f"{s * 1e3:,.2f}" for s in seconds), f"{left:,}"])


ZONES = Zones(1.5, 1, 999, 1_099, 1_149, ((10, 19),))


def test_safety_zones() -> None:
    chart = charts.safety_zones("z", {"one": ZONES, "two <&>": ZONES}, STYLES)
    root = check(chart, ["990", "110", "50"])
    assert chart.table.rows[0][2:] == ("990", "110", "50")
    assert len(drawn(root, "zone-ack")) == 5  # the tail and the stretch, twice; the legend


def test_a_narrow_zone_can_be_seen() -> None:
    zones = replace(ZONES, fully_to=999_999, last_confirmed=1_000_000, last_pushed=1_000_001)
    root = check(charts.safety_zones("z", {"one": zones}, STYLES), ["999,990"])
    widths = [float(element.get("width", "0")) for element in root.iter("rect")]
    assert min(widths) >= charts.SEGMENT_MIN


def test_an_empty_ledger_has_no_zone() -> None:
    nothing = Zones(0.0, 1, -1, -1, -1, ())
    check(charts.safety_zones("z", {"one": nothing}, STYLES), ["0"])


def test_charts_without_series_are_valid_pictures() -> None:
    for chart in (
        charts.quantile_curves("q", {}, STYLES),
        charts.latency_over_time("t", {}, {}, 1.0, STYLES),
        charts.time_at_ack_quorum("a", {}, STYLES),
        charts.safety_zones("z", {}, STYLES),
    ):
        check(chart, [])


@given(st.floats(1e-3, 1e6), st.floats(1e-3, 1e6), st.booleans())
def test_a_scale_keeps_order_and_stays_within_its_ends(one: float, other: float, log: bool) -> None:
    low, high = sorted((one, other))
    scale = svg.Scale(0.01, 1e5, 340.0, 14.0, is_log=log)
    assert 14.0 <= scale(high) <= scale(low) <= 340.0


@given(st.floats(1e-4, 1e7))
def test_steps_are_even_and_reach_the_end(high: float) -> None:
    found = svg.steps(high)
    assert found[-1] >= high * 0.999
    assert 3 <= len(found) <= 8
    assert found[0] == 0.0


@pytest.mark.parametrize("ends", [(0.1, 0.1), (0.3, 7.0), (1.0, 1.0)])
def test_decades_hold_both_ends(ends: tuple[float, float]) -> None:
    found = svg.decades(*ends)
    assert found[0] <= ends[0] <= ends[1] <= found[-1]
    assert len(found) >= 2
