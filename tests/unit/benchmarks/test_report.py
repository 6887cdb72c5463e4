"""The output of a benchmark, and the document made of it."""

import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.processes import (
    Usage,
    descriptors_of,
    forget_peak,
    peak_bytes,
    total,
    usage_of,
    used_between,
)
from benchmarks.report import Report
from benchmarks.run import ALL, document, module_of


def _records(output: io.StringIO) -> list[dict[str, object]]:
    return [json.loads(line) for line in output.getvalue().splitlines()]


def test_a_figure_is_the_median_of_its_samples_with_its_target() -> None:
    output = io.StringIO()
    report = Report("append", output)
    for rate in (3.0, 1.0, 2.0):
        report.sample("one case", {"MB_per_s": rate, "note": "text is no number"})
    report.figure("one case", "MB_per_s", "MB_per_s", at_least=2.5)
    *samples, figure = _records(output)
    assert [sample["MB_per_s"] for sample in samples] == [3.0, 1.0, 2.0]
    assert (figure["lowest"], figure["median"], figure["highest"]) == (1.0, 2.0, 3.0)
    assert (figure["wanted"], figure["met"]) == ({"at_least": 2.5}, False)
    assert report.values("one case", "note") == []


def test_without_samples_there_is_no_figure() -> None:
    output = io.StringIO()
    Report("append", output).figure("no case", "MB_per_s", "MB_per_s", at_least=1)
    assert output.getvalue() == ""


def test_the_document_lists_missed_targets_and_failed_scripts() -> None:
    output = io.StringIO()
    report = Report("read", output)
    report.machine({"cores": 2})
    report.sample("a", {"ms": 5.0})
    report.figure("a", "ms", "ms", at_most=4.0)
    report.figure("a", "ms", "ms", at_most=6.0)
    found = document([*output.getvalue().splitlines(), "a stray line"], {"age": 1}, "now")
    assert found["machine"] == {"benchmark": "read", "cores": 2}
    figures = found["figures"]
    assert isinstance(figures, list)
    assert found["missed"] == figures[:1]
    assert found["failed"] == {"age": 1}


def test_usage_is_a_difference_but_memory_is_the_last_value() -> None:
    used = used_between(Usage(1.0, 10, 20, 300), Usage(1.5, 11, 19, 700))
    assert used == Usage(0.5, 11, 19, 400)
    both = total([used, Usage(0.25, 1, 1, None)])
    assert both == Usage(0.75, 12, 20, None)


def test_the_usage_of_a_missing_process_is_unknown() -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert usage_of(ended.pid) == Usage(None, None, None, None)
    if Path("/proc/self/stat").exists():
        assert usage_of(os.getpid()).cpu_s is not None


def test_a_peak_of_memory_counts_from_when_it_was_reset() -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("the system reports no peak")
    forget_peak(os.getpid())
    before = peak_bytes(os.getpid())
    size = 64 * 2**20
    held = bytearray(os.urandom(2**20)) * (size // 2**20)
    assert peak_bytes(os.getpid()) - before > size // 2
    del held
    forget_peak(os.getpid())
    assert peak_bytes(os.getpid()) - before < size // 2


def test_descriptors_are_counted(tmp_path: Path) -> None:
    before = descriptors_of(os.getpid())
    if not before:
        pytest.skip("the system reports none")
    with (tmp_path / "one").open("w"), (tmp_path / "two").open("w"):
        assert descriptors_of(os.getpid()) == before + 2


@pytest.mark.parametrize(
    "name", [*ALL, "raw", "ageing", "topics", "spark_scan", "flood", "peers.tools"]
)
def test_every_script_is_found_by_its_name(name: str) -> None:
    assert importlib.util.find_spec(module_of(name)) is not None
