"""Tests of complete runs: one history per seed in every process, and reported violations."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from bookie.wire import frames
from bookie.wire.frames import POOLED_BYTES_MIN
from tests.simulation import nodes
from tests.simulation.__main__ import main
from tests.simulation.disk import DiskFaults
from tests.simulation.plan import make_plan
from tests.simulation.run import run_seed

pytestmark = pytest.mark.long

ROOT = Path(__file__).parents[3]
SEEDS = 3
POOLING_SEED, OTHER_SEED = 13, 4
"""By their plans; the first has many frames that arrive in pieces."""


def test_a_seed_has_one_history_for_any_hash_seed() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-m", "tests.simulation", "--seeds", str(SEEDS), "--hashes"],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
            text=True,
        ).stdout.splitlines()[:SEEDS]
        for hash_seed in ("1", "2")
    ]
    assert len(outputs[0]) == SEEDS
    assert outputs[0] == outputs[1]
    assert len({line.split()[1] for line in outputs[0]}) == SEEDS


def test_damage_stays_below_every_ack_quorum_within_the_budget() -> None:
    for seed in range(200):
        plan = make_plan(seed)
        assert plan == make_plan(seed)
        assert plan.damage_max < plan.ack_quorum_min
        assert all(quorum.ensemble <= plan.bookie_count for quorum in plan.quorums)


def test_promises_are_kept_and_the_summary_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--first-seed", "3", "--seeds", "2"]) == 0
    summary = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert summary["violations"] == 0
    assert summary["seeds"] == 2
    assert summary["entries"] > 0
    assert summary["messages"] > 0


def test_small_frames_are_received_into_buffers_that_are_lent_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Check this in the runs whose plan says so, and that no others do it."""
    lent: list[object] = []
    take = frames.BodyPool.take

    def noted(pool: frames.BodyPool, size: int) -> memoryview:
        view = take(pool, size)
        lent.append(view.obj)
        return view

    monkeypatch.setattr(frames.BodyPool, "take", noted)
    for seed, is_pooling in ((POOLING_SEED, True), (OTHER_SEED, False)):
        assert make_plan(seed).pools_small_bodies is is_pooling
        lent.clear()
        run_seed(seed)
        assert (len({id(each) for each in lent}) < len(lent)) is is_pooling
        assert bool(lent) is is_pooling
        assert frames.POOLED_BYTES_MIN == POOLED_BYTES_MIN


def test_beyond_the_budget_no_answer_is_wrong() -> None:
    assert run_seed(4, beyond_budget=True).violations == ()


def test_a_disk_that_ignores_syncs_is_detected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(nodes, "DiskFaults", partial(DiskFaults, loses_syncs=True))
    assert main(["--first-seed", "3", "--seeds", "4", "--stop-at-first"]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("seed ")
    assert "--trace" in lines[0]
    assert any(line.strip().startswith("durability") for line in lines)
    assert json.loads(lines[-1])["violations"] == 1
