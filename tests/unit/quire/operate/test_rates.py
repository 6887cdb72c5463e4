"""What servers do per second, from two readings of their metrics."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire.operate.watch import Change, Scrape, ScrapeError, parse_scrape, quantile_s

TEXT = """\
# HELP a_total Things.
# TYPE a_total counter
a_total{kind="x"} 3.0
a_total{kind="y"} 4.0
# HELP g A gauge.
# TYPE g gauge
g 7.0
# HELP t_seconds Times.
# TYPE t_seconds histogram
t_seconds_bucket{le="0.1"} 1.0
t_seconds_bucket{le="1.0"} 3.0
t_seconds_bucket{le="+Inf"} 4.0
t_seconds_count 4.0
t_seconds_sum 5.0
"""
INFINITE = float("inf")


def test_a_reading_is_summed_over_labels() -> None:
    scrape = parse_scrape(TEXT, 5.0)
    assert scrape.totals["a_total"] == 7
    assert scrape.totals["g"] == 7
    assert scrape.buckets == {"t_seconds": {0.1: 1, 1.0: 3, INFINITE: 4}}


@pytest.mark.parametrize("text", ["a b c d\n", "<html>", '{"a": 1}', 'a{b="c} 1\n'])
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ScrapeError, match="cannot be read"):
        parse_scrape(text, 0.0)


@given(st.text(max_size=80))
def test_any_text_is_a_reading_or_an_error(text: str) -> None:
    try:
        scrape = parse_scrape(text, 0.0)
    except ScrapeError:
        return
    assert scrape.at_s == 0.0


def change(before: dict[str, float], after: dict[str, float]) -> Change:
    return Change(Scrape(1.0, before, {}), Scrape(3.0, after, {}))


def test_rates_are_per_second_and_a_new_start_counts_from_zero() -> None:
    found = change({"a": 10.0, "b": 100.0}, {"a": 20.0, "b": 8.0, "c": 4.0})
    assert (found.rate("a"), found.rate("b"), found.rate("c")) == (5.0, 4.0, 2.0)
    assert found.rate("none") is None
    assert found.gauge("c") == 4.0


def test_the_time_of_what_was_done_in_between() -> None:
    before = Scrape(0.0, {}, {"t": {0.1: 5.0, 1.0: 5.0, INFINITE: 5.0}})
    after = Scrape(1.0, {}, {"t": {0.1: 5.0, 1.0: 15.0, INFINITE: 15.0}})
    found = Change(before, after)
    assert found.high_s("t", 0.5) == pytest.approx(0.55)
    assert found.high_s("none") is None
    assert Change(after, after).high_s("t") is None


@pytest.mark.parametrize(
    ("counts", "share", "wanted"),
    [
        ({}, 0.5, None),
        ({1.0: 0.0, INFINITE: 0.0}, 0.5, None),
        ({1.0: 10.0, INFINITE: 10.0}, 0.5, 0.5),
        ({1.0: 0.0, INFINITE: 10.0}, 0.5, 1.0),
        ({1.0: 5.0, 2.0: 10.0, INFINITE: 10.0}, 0.75, 1.5),
    ],
)
def test_quantiles(counts: dict[float, float], share: float, wanted: float | None) -> None:
    assert quantile_s(counts, share) == wanted
