"""Tests of real servers with many bad clients: good clients are served, and memory is limited."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.floods.kinds import MIB, SPECS, FloodKind
from benchmarks.floods.stuck_clients import CONNECTION_BYTES_MAX
from tests.until import WAIT_S

ROOT = Path(__file__).parents[2]
SHARE_OF_HANDSHAKES = 64
"""Handshakes of one address at a port."""
SHARE_OF_AN_ADMIN_PORT = 16
"""Connections of one address to an admin port."""

OTHER_DESCRIPTORS = 16
"""Descriptors that a server opens meanwhile for other work."""

pytestmark = [pytest.mark.integration, pytest.mark.long]

Sample = dict[str, Any]


@pytest.fixture(scope="module")
def samples(tmp_path_factory: pytest.TempPathFactory) -> dict[FloodKind, Sample]:
    """Run every flood once, in small."""
    directory = tmp_path_factory.mktemp("floods")
    words = ("--smoke", "--seconds", "1", "--data-dir", str(directory))
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.floods.flood", *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=2 * WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return {FloodKind(record["case"]): record for record in records if record["record"] == "sample"}


@pytest.mark.parametrize("kind", FloodKind)
def test_bad_clients_keep_no_good_one_out(
    samples: dict[FloodKind, Sample], kind: FloodKind
) -> None:
    sample = samples[kind]
    assert sample["is_full"], sample
    assert sample["opened"] >= SPECS[kind].smoke.connections
    assert sample["calls"], sample
    assert sample["quiet_calls"], sample
    assert not sample["failures"], sample
    assert not sample["quiet_failures"], sample
    assert sample["memory_growth_MB"] * MIB <= SPECS[kind].growth_bytes_max, sample


def test_one_address_gets_its_share_of_connections(samples: dict[FloodKind, Sample]) -> None:
    shares = {
        FloodKind.HANDSHAKES: SHARE_OF_HANDSHAKES,
        FloodKind.ADMIN: SHARE_OF_AN_ADMIN_PORT,
    }
    for kind, share in shares.items():
        sample = samples[kind]
        assert sample["refused"] >= SPECS[kind].smoke.connections - share, sample
        assert sample["descriptors"] - sample["descriptors_before"] <= share + OTHER_DESCRIPTORS, (
            sample
        )


def test_a_fetch_session_grows_to_its_limit(samples: dict[FloodKind, Sample]) -> None:
    sample = samples[FloodKind.SESSIONS]
    assert sample["denied"] > 0, sample


def test_announced_frames_that_are_not_sent_cost_little() -> None:
    """The floods compute their limit from the bookie's own limits: check that those are small."""
    assert max(CONNECTION_BYTES_MAX.values()) < MIB
