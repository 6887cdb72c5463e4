"""Handle of a process that appends to ledgers, and of its history so far.

Leaves the appends to `writer`, and the check of the history to `checker`.
"""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.campaign.child import Child
from tests.campaign.history import History, HistoryFollower
from tests.until import WAIT_S

POLL_S: Final = 0.005


class WritingProcess:
    """One running writer."""

    def __init__(self, process: Child, history: Path) -> None:
        self._process = process
        self._follower = HistoryFollower(history)
        self.pause = process.pause
        self.resume = process.resume
        self.log_tail = process.log_tail

    @property
    def history(self) -> History:
        """Facts that it recorded so far."""
        return self._follower.catch_up()

    @property
    def acked_count(self) -> int:
        """Number of entries acknowledged so far."""
        return self.history.acked_count

    @property
    def failure_count(self) -> int:
        """Number of ledgers or calls that failed so far."""
        return sum(self.history.failures.values())

    async def ledger_id(self) -> int:
        """Wait for its first ledger; return the id."""
        await self.wait_until(lambda history: bool(history.ledgers))
        return next(iter(self.history.ledgers))

    async def wait_for_acks(self, count: int) -> None:
        """Wait until this many more entries are acknowledged than now."""
        wanted = self.acked_count + count
        await self.wait_until(lambda history: history.acked_count >= wanted)

    async def wait_until(self, is_so: Callable[[History], bool]) -> None:
        """Wait until the history meets a condition.

        Raises TimeoutError; AssertionError if the process ended.
        """
        async with asyncio.timeout(WAIT_S):
            while not is_so(self.history):
                assert self._process.status is None, self._how_it_ended()
                await asyncio.sleep(POLL_S)

    async def stop(self) -> History:
        """Let it close its ledger; return its history.

        Raises AssertionError if it does not end, or ends with an error.
        """
        self._process.terminate()
        complaint = await self._process.ended(WAIT_S)
        was_ending = bool(self.history.failures)  # the signal may arrive while the process ends
        assert not complaint or (was_ending and self._process.status == -signal.SIGTERM), complaint
        return self.history

    async def ended(self) -> History:
        """Wait until it has ended by itself; return its history."""
        complaint = await self._process.ended(WAIT_S)
        assert not complaint, complaint
        return self.history

    def _how_it_ended(self) -> str:
        return f"the writer ended; its errors: {self.history.errors}; its output: {self.log_tail()}"


@asynccontextmanager
async def writing_process(
    module: str, uri: str, directory: Path, name: str, seed: int, **options: float
) -> AsyncIterator[WritingProcess]:
    """Start a writer; kill it at the end of the block if it still runs."""
    history, log = directory / f"{name}.jsonl", directory / f"{name}.log"
    words = {"uri": uri, "history": history, "seed": seed, **options}
    process = await Child.start("the writer", module, words, log)
    try:
        yield WritingProcess(process, history)
    finally:
        await process.kill()
