"""What faults of a campaign have in common: their record, their stop, and the block that runs them.

Leaves the faults to `faults`, `quire.repair.losses` and `zookeeper.faults`.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from metadata.cancelling import cancel_and_wait
from tests.campaign.availability import FaultTime


class FaultLog:
    """Record of all faults of one campaign."""

    def __init__(self, say: Callable[[str], None] = lambda _: None) -> None:
        """`say` gets a line as a fault begins or ends."""
        self.say = say
        self.counts: Counter[str] = Counter()
        """Number of faults by name."""
        self.complaints: list[str] = []
        """Processes that ended by themselves, or did not come back."""
        self.times = list[FaultTime]()
        """The faults that may explain errors."""
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Let no more faults begin."""
        self._stopping.set()

    async def stops_within(self, seconds: float) -> bool:
        """Wait for this time, or until `stop`; return whether no more faults may begin."""
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return False
        return True


class Faults(Protocol):
    """Injects faults; all have ended when `settle` returns."""

    @property
    def log(self) -> FaultLog:
        """Record of these faults."""

    async def run(self) -> None:
        """Inject faults until the log's `stop`; a fault that has begun continues until its end."""

    async def settle(self) -> None:
        """Wait until every fault has ended."""


@asynccontextmanager
async def injecting(faults: Faults) -> AsyncIterator["asyncio.Task[None]"]:
    """Inject faults during the block, and wait until all have ended."""
    task = asyncio.create_task(faults.run())
    try:
        yield task
        faults.log.stop()
        await task
        await faults.settle()
    finally:
        await cancel_and_wait(task)
