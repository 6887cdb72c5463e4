"""Tests of complete runs with topics: one history per seed in every process, and no violations."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.topics.topic_plan import make_topics_plan

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
FIRST_SEED, SEEDS = 3, 4
"""Coordinators, users, members, deletions."""


@pytest.mark.timeout(600)  # separate runs, twice
def test_a_seed_has_one_history_for_any_hash_seed() -> None:
    words = ["--first-seed", str(FIRST_SEED), "--seeds", str(SEEDS), "--hashes"]
    command = [sys.executable, "-m", "tests.simulation.topics", *words]
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


def test_promises_are_kept_and_the_summary_says_so() -> None:
    words = ["-m", "tests.simulation.topics", "--first-seed", "10", "--seeds", "2"]
    done = subprocess.run([sys.executable, *words], cwd=ROOT, capture_output=True, check=True)
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["violations"] == 0
    assert summary["entries"] > 0
