"""Dashboards, alerts and rules name metrics that exist, and each alert has a runbook."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.monitoring.__main__ import DIRECTORY, file_of, text_of
from tests.monitoring.boards import BOARDS
from tests.monitoring.grafana import Board

ROOT = DIRECTORY.parent
REFERENCE = (ROOT / "docs" / "reference" / "metrics.md").read_text()
RUNBOOKS = (ROOT / "docs" / "runbooks.md").read_text()
UNITS = {"short", "bytes", "Bps", "s", "percentunit", "ops"}
STANDARD = {
    "process_cpu_seconds_total",
    "process_resident_memory_bytes",
    "process_start_time_seconds",
}
"""Metrics of every process that Prometheus's client library makes."""
NAME = re.compile(r"\b(?:quire_[a-z0-9_]+|process_[a-z_]+|quire:[a-z0-9_:]+)\b")
REGEXP = re.compile(r'__name__=~"([^"]+)"')


def metrics() -> set[str]:
    """Return the names of all series, as a scrape has them."""
    found = set(STANDARD)
    for name, kind in re.findall(r"^\| `(\w+)` \| (\w+) \|", REFERENCE, re.MULTILINE):
        ends = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        found |= {name + end for end in ends}
    return found


def documents() -> Iterator[tuple[str, dict[str, object]]]:
    for path in (DIRECTORY / "rules.yaml", DIRECTORY / "alerts.yaml"):
        for group in yaml.safe_load(path.read_text())["groups"]:
            for rule in group["rules"]:
                yield path.name, rule


def recorded() -> set[str]:
    return {str(rule["record"]) for _, rule in documents() if "record" in rule}


def alerts() -> dict[str, dict[str, object]]:
    return {str(rule["alert"]): rule for _, rule in documents() if "alert" in rule}


def queries() -> Iterator[str]:
    for board in BOARDS:
        for panel in board.panels:
            yield from (query for query, _ in panel.queries)
    yield from (str(rule["expr"]) for _, rule in documents())


@pytest.mark.parametrize("board", BOARDS, ids=lambda each: each.uid)
def test_dashboards_are_fresh_and_described(board: Board) -> None:
    assert file_of(board).read_text() == text_of(board), "run python -m tests.monitoring"
    shown = json.loads(text_of(board))
    assert 9 <= len(shown["panels"]) <= 14
    assert len({each["title"] for each in shown["panels"]}) == len(shown["panels"])
    for panel in shown["panels"]:
        assert panel["description"].endswith(".")
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS


def test_every_metric_exists() -> None:
    known = metrics() | recorded()
    for query in queries():
        for pattern in REGEXP.findall(query):
            prefix = "quire_(bookie|broker|gateway|console)_tls_certificate_"
            assert pattern in (prefix + "expires_seconds", prefix + "unusable")
        for name in NAME.findall(REGEXP.sub("", query)):
            assert name in known, f"{name} in {query}"


def test_every_alert_says_what_to_do() -> None:
    anchors = {
        re.sub(r"[^a-z0-9 -]", "", each.lower()).replace(" ", "-")
        for each in re.findall(r"^#+ (.*)$", RUNBOOKS, re.MULTILINE)
    }
    for name, rule in alerts().items():
        labels, notes = rule["labels"], rule["annotations"]
        assert isinstance(labels, dict)
        assert isinstance(notes, dict)
        assert name.startswith("Quire")
        assert labels["severity"] in ("critical", "warning", "info")
        assert "{{" not in notes["summary"]
        page, _, anchor = str(notes["runbook_url"]).partition("#")
        assert page == "docs/runbooks.md"
        assert anchor in anchors, name


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("promtool is not installed: it is in Debian's package prometheus")
    return found


def test_prometheus_takes_the_rules() -> None:
    files = [str(DIRECTORY / name) for name in ("rules.yaml", "alerts.yaml")]
    subprocess.run([promtool(), "check", "rules", *files], check=True, capture_output=True)


def test_the_alerts_fire_when_they_should() -> None:
    tests = sorted(map(str, Path(DIRECTORY / "tests").glob("*.yaml")))
    assert tests
    done = subprocess.run(
        [promtool(), "test", "rules", *tests], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_alert_has_a_test() -> None:
    texts = "".join(path.read_text() for path in (DIRECTORY / "tests").glob("*.yaml"))
    missing = {name for name in alerts() if f'alertname="{name}"' not in texts}
    assert not missing
