"""Conversion of one run to JSON and back, and a directory of runs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from quire.bench.comparison import Comparison, read_comparison, write_machine, write_run
from quire.bench.results import (
    Cell,
    FailedRun,
    RunResult,
    failure_to_json,
    of_json,
    to_json,
)
from tests.support.quire.compare.samples import run_of


def test_a_run_survives_json() -> None:
    for run in (run_of(), replace(run_of(), zones=None, takeover=None)):
        back = of_json(json.loads(json.dumps(to_json(run))))
        assert isinstance(back, RunResult)
        assert back == run
        assert back.latency.as_json() == run.latency.as_json()


def test_a_failed_run_survives_json() -> None:
    failed = FailedRun(Cell("all-of-3", "steady", 5.0, 1), "no Java")
    assert of_json(json.loads(json.dumps(failure_to_json(failed)))) == failed


def test_keys_of_the_openmessaging_benchmark_are_spelled_as_there() -> None:
    told = to_json(run_of())
    assert told["publishRate"] == [2, 2]
    assert told["publishLatencyMax"] == [2.75, 41.5]
    assert told["publishErrorRate"] == [1.5]
    assert told["aggregatedPublishLatency50pct"] == 2.0
    assert told["aggregatedPublishLatencyMax"] == 40.0
    assert told["aggregatedPublishLatencyQuantiles"]["100"] == 40.0
    assert (told["workload"], told["messageSize"]) == ("killed-bookie", 64)


def test_quantiles_agree_with_their_names() -> None:
    told = to_json(run_of(milliseconds=tuple(float(number) for number in range(1, 1_001))))
    wanted = {"50pct": 500, "75pct": 750, "95pct": 950, "99pct": 990, "999pct": 999}
    for name, milliseconds in wanted.items():
        assert told[f"aggregatedPublishLatency{name}"] == pytest.approx(milliseconds, rel=1e-3)


def test_derived_figures_are_written() -> None:
    derived = to_json(run_of())["quire"]["derived"]
    assert derived == {
        "losable_bookies": 1,
        "recoverable_without": 1,
        "short_count": 1,
        "lost_count": 0,
    }


def test_a_comparison_is_read_back_from_its_directory(tmp_path: Path) -> None:
    failed = FailedRun(Cell("fixed-2", "steady", 5.0, 0), "no Java")
    runs = [run_of(repetition=n) for n in range(2)]
    for run in runs:
        write_run(tmp_path, run)
    write_run(tmp_path, failed)
    assert read_comparison(tmp_path).machine == {}
    write_machine(tmp_path, {"cores": "2"})
    found = read_comparison(tmp_path)
    assert found.machine == {"cores": "2"}
    assert found.of("killed-bookie", "all-of-3", 100.0) == runs
    assert found.failures() == [failed]


def test_names_come_in_the_order_of_the_catalogue() -> None:
    runs = [run_of("fixed-2"), run_of("all-of-3", "steady"), run_of("all-of-3", rate=5.0)]
    found = Comparison(tuple(runs))
    assert found.configurations == ["all-of-3", "fixed-2"]
    assert found.scenarios == ["steady", "killed-bookie"]
    assert found.rates == [5.0, 100.0]
