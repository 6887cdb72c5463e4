"""Handles a `ledger_writer` as a process of its own, and what it was told so far.

Leaves what it does to `ledger_writer`.
"""

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.campaign.history import History, HistoryFollower

REPOSITORY: Final = Path(__file__).parents[2]
WAIT_S: Final = 60.0
POLL_S: Final = 0.004
LOG_TAIL_BYTES: Final = 2_000


class WritingProcess:
    """One running writer."""

    def __init__(self, process: Process, history: Path, log: Path) -> None:
        self.path = history
        self._process = process
        self._follower = HistoryFollower(history)
        self._log = log

    @property
    def history(self) -> History:
        """What it was told until now."""
        return self._follower.catch_up()

    @property
    def failure_count(self) -> int:
        """How many ledgers or calls have failed until now."""
        return sum(self.history.failures.values())

    async def wait_until(self, is_so: Callable[[History], bool]) -> None:
        """Wait until what it was told is as wanted. Raises TimeoutError; AssertionError when it
        ended.
        """
        async with asyncio.timeout(WAIT_S):
            while not is_so(self.history):
                assert self._process.returncode is None, self.log_tail()
                await asyncio.sleep(POLL_S)

    async def wait_for_acks(self, count: int) -> None:
        """Wait until so many more entries are acknowledged than now."""
        wanted = self.history.acked_count + count
        await self.wait_until(lambda history: history.acked_count >= wanted)

    def pause(self) -> None:
        """Stop its clock."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> History:
        """Let it close its ledger; return all that it was told."""
        self._process.send_signal(signal.SIGTERM)
        try:
            status = await asyncio.wait_for(self._process.wait(), WAIT_S)
        except TimeoutError:
            self._process.kill()
            status = await self._process.wait()
        assert status in (0, -signal.SIGTERM, -signal.SIGKILL), self.log_tail()
        return self.history

    def log_tail(self) -> str:
        """Return the end of what it printed."""
        return self._log.read_text()[-LOG_TAIL_BYTES:]


@asynccontextmanager
async def writing(
    uri: str, directory: Path, name: str, seed: int, **options: float
) -> AsyncIterator[WritingProcess]:
    """Start a writer; kill it at the end of the block if it still runs."""
    history, log = directory / f"{name}.jsonl", directory / f"{name}.log"
    words = [
        word
        for key, value in options.items()
        for word in (f"--{key.replace('_', '-')}", str(value))
    ]
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.faults.ledger_writer", "--uri", uri),
            *("--history", str(history), "--seed", str(seed), *words),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=errors,
            cwd=REPOSITORY,
        )
    try:
        yield WritingProcess(process, history, log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
