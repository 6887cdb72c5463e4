"""Count of the passes of the event loop, for tests that say what runs in one of them."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from metadata.cancelling import cancel_and_wait


class LoopPasses:
    """The number of the pass that runs."""

    def __init__(self) -> None:
        self.now = 0

    async def count(self) -> None:
        """Count until the task is cancelled. Virtual time stands still meanwhile."""
        while True:
            self.now += 1
            await asyncio.sleep(0)


@asynccontextmanager
async def counting_passes() -> AsyncIterator[LoopPasses]:
    """Count during the block."""
    passes = LoopPasses()
    counting = asyncio.ensure_future(passes.count())
    try:
        yield passes
    finally:
        await cancel_and_wait(counting)
