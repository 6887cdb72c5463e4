"""Whole runs with topics: one history per seed in every process, and promises kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.topics.__main__ import main
from tests.simulation.topics.topic_plan import make_topics_plan

ROOT = Path(__file__).parents[3]
SEEDS = 4


def test_a_seed_has_one_history_whatever_the_hash_seed() -> None:
    command = [sys.executable, "-m", "tests.simulation.topics", "--seeds", str(SEEDS), "--hashes"]
    outputs = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        ).stdout.splitlines()[:SEEDS]
        for hash_seed in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len({line.split()[1] for line in outputs[0]}) == SEEDS


def test_equal_seeds_give_equal_plans() -> None:
    for seed in range(100):
        assert make_topics_plan(seed) == make_topics_plan(seed)


def test_promises_are_kept_and_the_summary_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--first-seed", "10", "--seeds", "2"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["violations"] == 0
    assert summary["entries"] > 0
