"""Test of the benchmark that ages a bookie, at a tiny size."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE

import pytest

pytestmark = pytest.mark.long

TIMEOUT_S = 150.0


async def test_an_ageing_bookie_loses_no_entry_and_does_not_stay_read_only() -> None:
    command = ["-m", "benchmarks.bookies.ageing", "--smoke", "--seed", "3"]
    process = await asyncio.create_subprocess_exec(
        sys.executable, *command, stdout=PIPE, stderr=PIPE
    )
    out, error = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    assert process.returncode == 0, (out[-2000:], error[-2000:])
    found = json.loads(out.splitlines()[-1])
    assert found["failure"] is None
    assert found["overwrites"] >= 3
    assert found["verified_entries"] > 0
