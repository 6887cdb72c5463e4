"""Reports of benches in the console: what is shown, and what is refused."""

import json
import xml.etree.ElementTree as ET
from dataclasses import replace
from pathlib import Path

import pytest

from quire.bench.comparison import read_comparison, write_run
from quire.bench.report_page import content
from quire.bench.results import Cell, FailedRun, to_json
from quire.console.options import ConsoleOptions
from quire.console.pages import reports_page
from quire.console.pages.reports_page import NoSuchReportError, list_reports, read_report
from tests.support.quire.compare.samples import run_of
from tests.support.quire.console import open_console
from tests.support.quire.memory_cluster import MemoryCluster

ADDRESS = "zk://nowhere:1/cluster"
HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def reports(tmp_path: Path) -> Path:
    """Return a directory with one report."""
    made = tmp_path / "reports"
    for number in range(2):
        write_run(made / "first", run_of(repetition=number))
    write_run(made / "first", FailedRun(Cell("fixed-2", "steady", 5.0, 0), HOSTILE))
    (made / "empty").mkdir()
    return made


def options(directory: Path | None) -> ConsoleOptions:
    return ConsoleOptions(metadata=ADDRESS, port=0, reports=str(directory or ""))


async def test_a_report_is_opened_in_place(memory_cluster: MemoryCluster, reports: Path) -> None:
    await memory_cluster.create("a")
    async with open_console(options(reports)) as (_, browser):
        listed = await browser.get("/reports")
        assert 'href="/reports/first">first</a>' in listed.text
        assert "empty" not in listed.text
        answer = await browser.get("/reports/first")
        assert answer.status == 200
        assert content(read_comparison(reports / "first")) in answer.text
        assert '<th scope="row">Lowest latency</th>' in answer.text
        assert HOSTILE not in answer.text
        assert " style=" not in answer.text  # the policy of the console forbids it
        assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        style = await browser.get("/reports/style.css")
        assert ".report .advice" in style.text
        assert style.headers["Content-Type"].startswith("text/css")


async def test_a_console_without_reports_says_how(memory_cluster: MemoryCluster) -> None:
    await memory_cluster.create("a")
    async with open_console(options(None)) as (_, browser):
        assert "--reports DIR" in (await browser.get("/reports")).text
        assert (await browser.get("/reports/first")).status == 404


async def test_names_cannot_leave_the_directory(
    memory_cluster: MemoryCluster, reports: Path, tmp_path: Path
) -> None:
    write_run(tmp_path / "outside", run_of())
    (reports / "link").symlink_to(tmp_path / "outside")
    await memory_cluster.create("a")
    async with open_console(options(reports)) as (_, browser):
        assert "link" not in (await browser.get("/reports")).text.partition("<main")[2]
        for name in ("link", "..%2Foutside", "%2Fetc", "first%2F..", "nope"):
            answer = await browser.get(f"/reports/{name}")
            assert answer.status == 404, name


@pytest.mark.parametrize("name", ["..", ".", "a/b", "../outside", "", "a\0b", "x" * 101, "ä"])
def test_a_name_is_a_plain_name(reports: Path, name: str) -> None:
    with pytest.raises(NoSuchReportError, match="no report of this name"):
        read_report(reports, name)


def test_links_in_a_report_are_refused(reports: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(json.dumps({"password": "x"}))
    (reports / "first" / "machine.json").symlink_to(tmp_path / "secret")
    with pytest.raises(NoSuchReportError, match=r"machine\.json is not a plain file"):
        read_report(reports, "first")


def test_a_large_report_is_refused(reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reports_page, "BYTES_MAX", 1_000)
    with pytest.raises(NoSuchReportError, match="larger than"):
        read_report(reports, "first")
    monkeypatch.undo()
    monkeypatch.setattr(reports_page, "FILES_MAX", 2)
    with pytest.raises(NoSuchReportError, match="larger than"):
        read_report(reports, "first")


@pytest.mark.parametrize(
    "change",
    [
        {"seconds": "<b>"},
        {"seconds": None},
        {"seconds": float("nan")},
        {"entry_bytes": 1.5},
        {"written_bytes_per_entry": "x"},
        {"cell": {"configuration": 7, "scenario": "steady", "rate": 1.0, "repetition": 0}},
        {"marks": [{"at": 1.0, "label": ["x"]}]},
    ],
)
def test_figures_of_another_type_are_refused(reports: Path, change: dict[str, object]) -> None:
    told = to_json(run_of(repetition=7))
    told["quire"] |= change
    path = reports / "first" / "killed-bookie--all-of-3--100--7.json"
    path.write_text(json.dumps(told))
    with pytest.raises(NoSuchReportError, match=r"100--7\.json is not a result") as raised:
        read_report(reports, "first")
    assert str(reports) not in str(raised.value)


def test_what_another_release_knows_is_shown_by_its_name(reports: Path) -> None:
    run = run_of(repetition=8)
    write_run(reports / "first", replace(run, cell=replace(run.cell, configuration="new")))
    write_run(reports / "first", FailedRun(Cell("new", "steady", 5.0, 9), "why"))
    ET.fromstring(content(read_report(reports, "first")))


def test_a_directory_that_holds_runs_itself(reports: Path, tmp_path: Path) -> None:
    assert list_reports(reports / "first").holds_runs
    assert not list_reports(reports).holds_runs
    with pytest.raises(NoSuchReportError, match="cannot be read"):
        list_reports(tmp_path / "nowhere")


def test_the_list_has_a_limit(reports: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_run(reports / "second", run_of())
    assert not list_reports(reports).is_cut
    monkeypatch.setattr(reports_page, "REPORTS_MAX", 1)
    found = list_reports(reports)
    assert (len(found.reports), found.is_cut) == (1, True)
