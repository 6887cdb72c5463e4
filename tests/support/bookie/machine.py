"""Processes that run one after another on one simulated disk, for tests of starts."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TypeVar

from bookie.config import StorageConfig
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import KEY, SMALL, add

Result = TypeVar("Result")
Life = Callable[[BookieStorage, DiskFaults], Coroutine[None, None, Result]]


class Machine:
    """A disk, and the processes that use it one after another."""

    def __init__(self, config: StorageConfig = SMALL) -> None:
        self.platter = Platter()
        self.rng = random.Random("durable start")
        self.config = config

    def live(self, life: Life[Result]) -> Result:
        """Open a storage, run `work` on it, and kill the process; the kernel keeps running."""

        async def main() -> Result:
            loop, faults, result = simulation_loop(), DiskFaults(), list[Result]()

            async def process() -> None:
                disk = CrashableDisk(self.platter, self.rng, faults)
                storage = await BookieStorage.open(disk, self.config, rng=self.rng)
                result.append(await life(storage, faults))

            node, task = loop.spawn(process())
            await asyncio.wait([task])
            loop.kill(node)
            self.platter.generation += 1
            self.platter.locked = False
            task.result()
            return result[0]

        return run_simulation(main, 1)

    def log_names(self) -> list[str]:
        return sorted(name for name in self.platter.names if name.startswith("log/"))


async def leave_unsynced(faults: DiskFaults, how: str, call: Coroutine[None, None, object]) -> None:
    """Make a call whose bytes reach the page cache, and whose sync hangs or fails."""
    if how == "kill":
        faults.paused = asyncio.Event()
    else:
        faults.failing_syncs = 1
    task = asyncio.ensure_future(call)
    await asyncio.sleep(5)
    assert not task.done() or task.result() is not Status.OK


async def fence(storage: BookieStorage, ledger_id: int) -> Status:
    return (await storage.fence(LedgerId(ledger_id), KEY)).status


async def begin(storage: BookieStorage) -> None:
    assert await add(storage, make_run(7, 0, 2)) is Status.OK
    assert await add(storage, make_run(8, 0, 2)) is Status.OK
