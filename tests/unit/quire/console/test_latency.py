"""Samples of appends' latency within bounds, and their view beside a ledger's events."""

import re
import xml.etree.ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.ids import BookieId
from quire.console import latency
from quire.console.latency import (
    BOOKIES_SHOWN_MAX,
    PLOT_PERCENT,
    SAMPLES_MAX,
    STRIP_HEIGHT,
    TABLE_ROWS_MAX,
    WIDTH,
    AppendRing,
    Happened,
    Mark,
    Sample,
    Strip,
    latency_strips,
    latency_view,
)
from tests.support.sample_ledgers import closed_ledger

A, B, C = (BookieId(each) for each in "abc")


def test_the_oldest_samples_are_dropped() -> None:
    ring = AppendRing()
    for at_ms in range(SAMPLES_MAX + 5):
        ring.note(A, Sample(at_ms, 1))
    assert [sample.at_ms for sample in ring.of(A)] == list(range(5, SAMPLES_MAX + 5))
    assert ring.of(B) == ()


def test_the_bookie_that_was_asked_least_recently_is_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(latency, "BOOKIES_MAX", 2)
    ring = AppendRing()
    for at_ms, bookie in enumerate((A, B, A, C)):
        ring.note(bookie, Sample(at_ms, None))
    assert [len(ring.of(bookie)) for bookie in (A, B, C)] == [2, 0, 1]


START = 1_700_000_000_000
SAMPLES = st.lists(
    st.tuples(st.integers(0, 10**7), st.one_of(st.none(), st.integers(0, 10**9))),
    min_size=1,
    max_size=40,
    unique_by=lambda each: each[0],
).map(lambda pairs: [Sample(START + at, us) for at, us in sorted(pairs)])


def ring_of(**samples: list[int | None]) -> AppendRing:
    """Return a ring with a sample each 10 s."""
    ring = AppendRing()
    for name, values in samples.items():
        for number, us in enumerate(values):
            ring.note(BookieId(name), Sample(START + 10_000 * number, us))
    return ring


def test_without_samples_there_is_nothing_to_show() -> None:
    assert latency_view(closed_ledger("abc"), AppendRing(), []) is None
    assert latency_view(closed_ledger("abc"), ring_of(x=[1]), []) is None


def test_events_are_beside_the_samples_of_their_time() -> None:
    events = [
        Happened("created", START - 1),
        Happened("fragment 1 begins"),
        Happened("a repair is needed <now>", START + 15_000),
    ]
    ring = ring_of(a=[2_000, 500_000, 0], b=[1_000, None, None])
    view = latency_view(closed_ledger("abc"), ring, events)
    assert view is not None
    assert (view.since_ms, view.until_ms) == (START, START + 20_000)
    assert (view.bookies, view.left_out, view.events_before) == (("a", "b"), 1, 1)
    assert [row.cells for row in view.rows] == [
        ("2 ms", "1 ms"),
        ("500 ms", "no answer"),
        ("no appends", "no answer"),
    ]
    assert [row.events for row in view.rows] == [(), (), (3,)]
    root = ET.fromstring(view.drawn)
    marks = [element for element in root.iter("line") if element.get("class") == "mark"]
    assert [mark.get("x1") for mark in marks] == [f"{0.75 * PLOT_PERCENT:.2f}%"]
    texts = [element.text for element in root.iter("text")]
    assert texts.count("100 ms") == 2
    assert texts[-3:] == ["22:13:20", "22:13:30", "22:13:40 UTC"]
    assert "a repair is needed <now>" in [element.text for element in root.iter("title")]
    assert sum(element.get("class") == "away" for element in root.iter("path")) == 2


def test_many_bookies_and_samples_are_within_bounds() -> None:
    values: list[int | None] = [1_000] * 90
    ring = ring_of(**dict.fromkeys("abcdefghijk", values))
    view = latency_view(closed_ledger("abc", "def", "ghi", "ijk"), ring, [])
    assert view is not None
    assert (len(view.bookies), view.left_out) == (BOOKIES_SHOWN_MAX, 3)
    assert len(view.rows) == TABLE_ROWS_MAX
    assert view.bookies[:3] == ("i", "j", "k")  # the newest fragment first


@given(SAMPLES)
def test_every_sample_is_drawn_within_the_picture(samples: list[Sample]) -> None:
    since, until = samples[0].at_ms, samples[-1].at_ms
    marks = [Mark(1, since, 'a & "b"'), Mark(2, until, "<c>")]
    drawn = latency_strips([Strip("<bookie>", samples)], marks, since, until)
    root = ET.fromstring(drawn)
    drawn_paths = [
        str(element.get("d"))
        for element in root.iter("path")
        if element.get("class") in ("curve", "point")
    ]
    numbers = [
        float(n) for path in drawn_paths for n in re.findall(r"[\d.]+", path.removesuffix("h0"))
    ]
    assert len(numbers) == 2 * sum(bool(sample.p99_us) for sample in samples)
    assert all(0 <= x <= WIDTH for x in numbers[::2])
    assert all(0 <= y <= STRIP_HEIGHT for y in numbers[1::2])
    away = [element for element in root.iter("path") if element.get("class") == "away"]
    assert len(away) == sum(sample.p99_us is None for sample in samples)
