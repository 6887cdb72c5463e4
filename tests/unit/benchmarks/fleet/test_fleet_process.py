"""Tests of `python -m benchmarks.fleet` as a user runs it: a separate process, a table, JSON."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from benchmarks.fleet.assumptions import described
from benchmarks.fleet.configurations import BY_NAME
from quire.errors import ExitCode
from tests.until import WAIT_S

pytestmark = pytest.mark.long

WORDS = [
    "--bookies=20",
    "--racks=4",
    "--ledgers=40",
    "--clients=4",
    "--days=5",
    "--retention-hours=24",
    "--seeds=2",
    "--crashes=10",
    "--disk-losses=2",
]


def fleet(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "benchmarks.fleet", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=dict(os.environ),
        timeout=WAIT_S,
        check=False,
    )


def test_all_configurations_under_two_histories() -> None:
    done = fleet("-o", "json", *WORDS)
    assert done.returncode == ExitCode.DONE, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    values = {each["name"]: each["value"] for each in told["assumptions"]}
    assert list(values) == [assumption_info.name for assumption_info in described()]
    assert (values["bookies"], values["crashes"]) == (20, 10)
    assert [each["seed"] for each in told["histories"]] == [1, 2]
    assert told["histories"][0]["faults"]["crash"] > 10
    figures = {each["name"]: each["figures"] for each in told["configurations"]}
    assert list(figures) == list(BY_NAME)
    for each in told["configurations"]:
        assert [run["seed"] for run in each["runs"]] == [1, 2]
        assert 0.9 < each["figures"]["append_availability"]["least"] <= 1
    outage = {name: each["outage_s_per_ledger"]["middle"] for name, each in figures.items()}
    assert outage["fixed-majority-5"] < outage["all-of-3"] < outage["fixed-2"]
    copies = {name: each["two_copies_gib_hours"]["middle"] for name, each in figures.items()}
    assert copies["fixed-majority-5"] < copies["all-of-3"] < copies["all-of-2"]
    assert figures["majority-3"]["at_ack_quorum_gib_hours"]["middle"] > 0
    assert figures["all-of-3"]["at_ack_quorum_gib_hours"] is None


def test_a_table_for_people() -> None:
    done = fleet("--configurations=all-of-3,fixed-2", *WORDS)
    assert done.returncode == ExitCode.DONE, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("disk_losses") and "per bookie and month" in line for line in lines)
    assert any(line.startswith("seed 2: ") and "× disk loss" in line for line in lines)
    assert any(line.startswith("all-of-3 ") for line in lines)
    assert any(line.startswith("fixed-2 ") for line in lines)


def test_a_number_that_is_none() -> None:
    done = fleet("--bookies", "many")
    assert done.returncode == ExitCode.USAGE
    assert "invalid number value: 'many'" in done.stderr


def test_a_fleet_that_is_too_small() -> None:
    done = fleet("--bookies", "4", "--configurations=fixed-majority-5")
    assert done.returncode == ExitCode.USAGE
    assert "5 bookies are needed" in done.stderr
