"""The page: complete, self-contained, with a table below every picture."""

import re
import xml.etree.ElementTree as ET
from dataclasses import replace

from quire.bench import report_page
from quire.bench.choosing import Outcome, recommend
from quire.bench.comparison import LOAD, Comparison
from quire.bench.configurations import CONFIGURATIONS
from quire.bench.figures import FIGURES
from quire.bench.measuring import Histogram
from quire.bench.report_page import DARK, DASHES, LIGHT, content, render
from quire.bench.results import Cell, FailedRun
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


NO_DIFFERENCE = "all of 3 or majority of 3 (no difference shown)"


def page() -> tuple[str, ET.Element]:
    told = render(Comparison(RUNS))
    return told, ET.fromstring(told.partition("\n")[2])


def test_a_table_follows_every_picture() -> None:
    _, root = page()
    figures = list(root.iter("figure"))
    assert len(figures) == 3 + 4 * 3 + 1
    for section in root.iter():
        children = list(section)
        for place, child in enumerate(children):
            if child.tag == "figure":
                assert children[place + 1].find(".//td") is not None


def test_the_page_is_self_contained() -> None:
    told, root = page()
    assert not re.search(r"https?:|//[a-z]|url\(|@import|<script|<link|<img|<iframe", told)
    assert [element for element in root.iter() if element.get("src") is not None] == []


def test_ids_are_unique_and_links_have_targets() -> None:
    _, root = page()
    ids = [element.get("id") for element in root.iter() if element.get("id")]
    assert len(ids) == len(set(ids))
    assert all(str(element.get("href"))[1:] in ids for element in root.iter("a"))


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
    shown = [figure for figure in FIGURES if figure.name not in unknown]
    assert [figure.name for figure in shown if figure.title.partition(",")[0] not in titles] == []


def test_a_glance_has_every_scenario_and_configuration() -> None:
    _, root = page()
    glance = next(element for element in root.iter("section") if element.get("id") == "glance")
    table = next(glance.iter("table"))
    rows = [[str(cell.text) for cell in row] for row in table.iter("tr")]
    assert rows == [
        ["p99, ms", "all of 3", "majority of 3", "fixed 2"],
        ["steady", "40.0", "–", "–"],
        ["killed-bookie", "42.5 (40.0–45.0)", "220.0 (40.0–400.0)", "–"],
    ]


def first_screen(page: str) -> ET.Element:
    root = ET.fromstring(page.partition("\n")[2])
    children = list(next(root.iter("div")))
    assert (children[0].tag, children[0].get("id")) == ("section", "answer")
    return children[0]


def test_the_page_begins_with_the_answer() -> None:
    answer = first_screen(render(Comparison(RUNS)))
    advice = next(answer.iter("table"))
    assert [list(row.itertext())[:2] for row in advice.iter("tr")][1:] == [
        ["Lowest latency", "all of 3"],
        ["Lowest latency while one bookie fails", NO_DIFFERENCE],
        ["Survives two losses", "not measured"],
        ["Fewest copies", "none of these configurations"],
    ]
    assert "BookKeeper, AQ = WQ" in advice.itertext()
    commands = [str(element.text) for element in advice.iter("code")]
    assert commands == ["quire bench compare --scenarios two-failures"]


def test_the_first_screen_has_a_picture_for_each_reason() -> None:
    calm = run_of("all-of-3", "steady", milliseconds=(2.0,))
    slow = run_of("all-of-3", "slow-bookie", milliseconds=(90.0,))
    answer = first_screen(render(Comparison((calm, slow))))
    rows = [[str(cell.text) for cell in table.iter("td")] for table in answer.iter("table")][1:]
    assert rows == [
        ["BookKeeper, AQ = WQ", "2.0", "90.0"],
        ["BookKeeper, AQ = WQ", "1", "–"],
        ["BookKeeper, AQ = WQ", "210", "–"],
    ]


def test_a_busy_machine_or_a_late_generator_gives_no_recommendation() -> None:
    facts = {"cores": "2", LOAD: "2.01 1.00 0.50"}
    late = replace(RUNS[0], late_ms_max=51.0)
    for comparison, says in (
        (Comparison(RUNS, facts), "2.01 on 2 cores"),
        (Comparison((*RUNS[1:], late)), "late in 1 of 6 runs, by up to 51 ms (killed-bookie"),
    ):
        (warning,) = first_screen(render(comparison)).findall("p[@class='warning']")
        assert says in str(warning.text)
        assert {made.outcome for made in recommend(comparison)} == {Outcome.DOUBTFUL}
        assert first_screen(render(comparison)).find(".//table[@class='advice']") is None
    calm = Comparison(RUNS, {"cores": "2", LOAD: "2.00 1.00 0.50"})
    assert first_screen(render(calm)).find(".//table[@class='advice']") is not None


def test_a_quantile_needs_appends_beyond_it() -> None:
    few = replace(RUNS[0], latency=Histogram.of_seconds([0.001] * 999))
    assert few.latency.carries(0.98)
    assert not few.latency.carries(0.99)
    chart = report_page.sections_of(Comparison((few, RUNS[2])))[-1].charts[0][1]
    assert chart.table.headings[-2:] == ("99.95 %", "longest, ms")
    assert [row[-4:] for row in chart.table.rows] == [("–", "–", "–", "1.00"), ("40.00",) * 4]
    comparison = Comparison((replace(few, cell=Cell("all-of-3", "steady", 100.0, 0)),))
    assert recommend(comparison)[0].outcome is Outcome.TOO_FEW


def test_headings_say_the_durations_that_were_run() -> None:
    short = replace(run_of(scenario="paused-bookie"), seconds=4.0)
    assert "does not respond for 2.5 s" in render(Comparison((short,)))


def test_a_missing_spread_is_said_once() -> None:
    told, _ = page()
    assert told.count("was run once") + told.count("were run once") == 1
    assert "3 of 5 cells" in told
    assert "unknown" not in told
    assert "Every cell was run once" in render(Comparison(RUNS[:1]))


def test_best_values_have_a_sign_unless_all_overlap() -> None:
    fast = [run_of("majority-3", repetition=each, milliseconds=(9.0 + each,)) for each in (0, 1)]
    slow = [run_of("all-of-2", repetition=each, milliseconds=(90.0 + each,)) for each in (0, 1)]
    root = ET.fromstring(content(Comparison((*RUNS[:2], *fast, *slow))))
    glance = next(element for element in root.iter("section") if element.get("id") == "glance")
    marked = [
        str(element.text) for element in glance.iter("td") if element.get("class") == "n best"
    ]
    assert marked == ["★ 9.5 (9.0–10.0)"] * 2  # of p99 and of the longest append
    assert "★" not in content(Comparison((*RUNS[:2], *RUNS[:2]))).partition("</section>")[2]


def test_the_page_is_readable_in_the_dark() -> None:
    told, _ = page()
    assert told.count("prefers-color-scheme: dark") == 3
