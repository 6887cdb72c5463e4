"""An audit succeeds only if a service knew every package, and fails for each vulnerability."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.supply_chain import audit
from tests.supply_chain.audit import CLEAN, UNCHECKED, VULNERABLE, Report, read_report, status_of
from tests.supply_chain.lock_file import parse_lock

HASH = "--hash=sha256:" + "0" * 64
LOCK = f"one==1.0 \\\n    {HASH}\ntwo==2.0 \\\n    {HASH}\n"
PACKAGES = parse_lock(LOCK)
ONE: dict[str, Any] = {"name": "one", "version": "1.0", "vulns": []}
TWO: dict[str, Any] = {"name": "Two", "version": "2.0", "vulns": []}
BAD: dict[str, Any] = TWO | {"vulns": [{"id": "PYSEC-1", "fix_versions": ["2.1"]}]}
SKIPPED = {"name": "two", "skip_reason": "Dependency not found on PyPI"}


def report(*entries: dict[str, Any]) -> Report:
    return read_report("pypi", PACKAGES, json.dumps({"dependencies": entries}), "")


@pytest.mark.parametrize(
    ("entries", "status"),
    [
        ([ONE, TWO], CLEAN),
        ([ONE, BAD], VULNERABLE),
        ([BAD], VULNERABLE),
        ([ONE, SKIPPED], UNCHECKED),
        ([ONE], UNCHECKED),
        ([], UNCHECKED),
    ],
)
def test_a_package_that_is_left_out_is_not_clean(entries: list[Any], status: int) -> None:
    assert status_of([report(*entries)]) == status


def test_a_vulnerability_is_named_with_its_fix() -> None:
    assert report(ONE, BAD).vulnerabilities == ("Two 2.0: PYSEC-1, fixed in 2.1",)


def test_another_service_can_answer() -> None:
    unknown = read_report("pypi", PACKAGES, "", "Traceback\nConnectionError: no route")
    assert unknown.reason == "ConnectionError: no route"
    assert status_of([unknown]) == UNCHECKED
    assert status_of([unknown, report(ONE, TWO)]) == CLEAN
    assert status_of([report(SKIPPED, BAD), report(ONE, TWO)]) == VULNERABLE


@pytest.mark.parametrize(("answer", "status"), [([ONE, TWO], CLEAN), ([ONE, BAD], VULNERABLE)])
def test_the_status_is_that_of_the_answer(answer: list[Any], status: int, tmp_path: Path) -> None:
    """pip-audit fails with status 1 for a vulnerability and for its own errors alike."""
    tool, lock = tmp_path / "tool", tmp_path / "lock"
    text = json.dumps({"dependencies": answer})
    tool.write_text(f"#!{sys.executable}\nprint({text!r})\nraise SystemExit(1)\n")
    tool.chmod(0o700)
    lock.write_text(LOCK)
    assert audit.main(["--tool", str(tool), "--lock", str(lock)]) == status


def test_a_missing_tool_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "lock"
    lock.write_text(LOCK)
    words = ["--tool", str(tmp_path / "none"), "--lock", str(lock)]
    assert audit.main(words) == UNCHECKED
    assert audit.main([*words, "--status-if-unchecked", "0"]) == 0
    assert "NOT CHECKED by osv: 2 packages" in capsys.readouterr().out
