"""Tests of a failed write on the simulated disk: the file is unusable, and no data is durable."""

import asyncio
import random

import pytest

from bookie.errors import DiskFailedError
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter

NAME = "log/00000001.log"
STORED = b"s" * 5_000
REFUSED = b"r" * 5_000
RUNS = 40


def test_nothing_of_a_failed_write_is_durable() -> None:
    kept_shares = []
    for seed in range(RUNS):
        platter, rng, faults = Platter(), random.Random(seed), DiskFaults()

        async def main(
            platter: Platter = platter, rng: random.Random = rng, faults: DiskFaults = faults
        ) -> None:
            disk = CrashableDisk(platter, rng, faults)
            file = await disk.create(NAME)
            await file.commit(0, [STORED])
            await disk.sync_directory("log")
            faults.failing_writes = 1
            with pytest.raises(DiskFailedError, match="write"):
                await file.commit(len(STORED), [REFUSED])
            assert faults.failing_writes == 0
            assert bytes(platter.names[NAME].durable) == STORED
            with pytest.raises(AssertionError):
                await file.commit(len(STORED), [REFUSED])

        asyncio.run(main())
        platter.crash(rng)
        left = bytes(platter.names[NAME].current)
        assert left.startswith(STORED)
        kept_shares.append(left.count(b"r") / len(REFUSED))
    assert 0.0 in kept_shares
    assert max(kept_shares) < 1.0, "the end was never written"
    assert any(kept_shares), "what was written before the failure may reach the disk all the same"
