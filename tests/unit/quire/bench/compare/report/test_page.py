"""The page: complete, self-contained, with a table below every picture."""

import re
import xml.etree.ElementTree as ET

from quire.bench.compare.comparison import Comparison
from quire.bench.compare.configurations import CONFIGURATIONS
from quire.bench.compare.figures import FIGURES
from quire.bench.compare.report.page import DARK, DASHES, LIGHT, render
from quire.bench.compare.results import Cell, FailedRun
from tests.support.quire.compare.samples import run_of

RUNS = (
    run_of("all-of-3"),
    run_of("all-of-3", repetition=1, milliseconds=(1.0, 2.0, 45.0)),
    run_of("majority-3"),
    run_of("majority-3", repetition=1, milliseconds=(300.0, 400.0)),
    run_of("all-of-3", "steady", 100.0),
    run_of("all-of-3", "steady", 200.0),
    FailedRun(Cell("fixed-2", "steady", 100.0, 0), "no <Java> & no jars"),
)


def page() -> tuple[str, ET.Element]:
    told = render(Comparison(RUNS))
    return told, ET.fromstring(told.partition("\n")[2])


def test_a_table_follows_every_picture() -> None:
    _, root = page()
    figures = list(root.iter("figure"))
    assert len(figures) == 4 * 3 + 1
    for section in root.iter("section"):
        children = list(section)
        for place, child in enumerate(children):
            if child.tag == "figure":
                assert children[place + 1].find(".//td") is not None


def test_the_page_is_self_contained() -> None:
    told, root = page()
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<script|<link|<img|<iframe", told)
    assert [each for each in root.iter() if each.get("src") is not None] == []


def test_ids_are_unique_and_links_have_targets() -> None:
    _, root = page()
    ids = [each.get("id") for each in root.iter() if each.get("id")]
    assert len(ids) == len(set(ids))
    assert all(str(each.get("href"))[1:] in ids for each in root.iter("a"))


def test_every_configuration_has_a_colour_and_a_stroke() -> None:
    assert len(LIGHT) == len(DARK) == len(DASHES) >= len(CONFIGURATIONS)
    assert len(set(LIGHT)) == len(LIGHT)
    assert len(set(DARK)) == len(DARK)


def test_a_rate_sweep_does_not_hide_other_runs() -> None:
    slow = run_of("all-of-3", "steady", 5.0)
    for runs in (RUNS, (*RUNS, slow)):
        page = render(Comparison(runs))
        glance = page.partition('id="glance"')[2].partition("</section>")[0]
        assert "400" in glance  # of another scenario, at a higher rate


def test_texts_are_escaped_and_failures_shown() -> None:
    told, root = page()
    assert "no &lt;Java&gt; &amp; no jars" in told
    assert "no <Java> & no jars" in [cell.text for cell in root.iter("td")]


def test_every_figure_that_a_run_has_is_in_the_table() -> None:
    _, root = page()
    titles = [str(cell.text).partition(",")[0] for cell in root.iter("th")]
    unknown = ("sent", "first_ack_s")  # None in the samples
    shown = [each for each in FIGURES if each.name not in unknown]
    assert [each.name for each in shown if each.title.partition(",")[0] not in titles] == []


def test_a_glance_has_every_scenario_and_configuration() -> None:
    _, root = page()
    glance = next(each for each in root.iter("section") if each.get("id") == "glance")
    table = next(glance.iter("table"))
    rows = [[str(cell.text) for cell in row] for row in table.iter("tr")]
    assert rows == [
        ["p99, ms", "A all-of-3", "B majority-3", "F fixed-2"],
        ["steady", "40.0", "–", "–"],
        ["killed-bookie", "42.5 (40.0–45.0)", "220.0 (40.0–400.0)", "–"],
    ]


def test_the_spread_and_the_verdict_are_shown() -> None:
    told, _ = page()
    assert "42.5 (40.0–45.0)" in told
    assert "no difference beyond noise" in told
    assert "one run: spread unknown" in told


def test_the_page_is_readable_in_the_dark() -> None:
    told, _ = page()
    assert told.count("prefers-color-scheme: dark") == 2
