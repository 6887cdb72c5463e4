"""The disk contract, on the real disk and on the simulated one."""

import asyncio
import random
from pathlib import Path

import pytest

from bookie.files.disk_real import RealDisk
from tests.contracts.disk import CHECKS, DiskContract
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.loop import run_simulation


@pytest.mark.parametrize("name", CHECKS)
def test_real_disk(name: str, tmp_path: Path) -> None:
    async def main() -> None:
        disk, other = RealDisk(tmp_path / "data"), RealDisk(tmp_path / "data")
        try:
            await getattr(DiskContract(), name)(disk, other)
        finally:
            await disk.close()
            await other.close()

    asyncio.run(main())


@pytest.mark.parametrize("preallocates", [False, True])
@pytest.mark.parametrize("name", CHECKS)
def test_simulated_disk(name: str, preallocates: bool) -> None:
    async def main() -> None:
        platter, rng = Platter(), random.Random(1)
        faults = DiskFaults(preallocates=preallocates)
        disk, other = (CrashableDisk(platter, rng, faults) for _ in range(2))
        await getattr(DiskContract(), name)(disk, other)

    run_simulation(main, 1)
