"""Handles a process that appends to ledgers, and what it was told so far.

Leaves what it does to its module, and the check of what it was told to `checker`.
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
POLL_S: Final = 0.005
LOG_TAIL_BYTES: Final = 2_000


class WritingProcess:
    """One running writer."""

    def __init__(self, process: Process, history: Path, log: Path) -> None:
        self._process = process
        self._follower = HistoryFollower(history)
        self._log = log

    @property
    def history(self) -> History:
        """What it was told until now."""
        return self._follower.catch_up()

    @property
    def acked_count(self) -> int:
        """How many entries were acknowledged until now."""
        return self.history.acked_count

    @property
    def failure_count(self) -> int:
        """How many ledgers or calls have failed until now."""
        return sum(self.history.failures.values())

    async def ledger_id(self) -> int:
        """Wait for its first ledger; return the id."""
        await self.wait_until(lambda history: bool(history.ledgers))
        return next(iter(self.history.ledgers))

    async def wait_for_acks(self, count: int) -> None:
        """Wait until so many more entries are acknowledged than now."""
        wanted = self.acked_count + count
        await self.wait_until(lambda history: history.acked_count >= wanted)

    async def wait_until(self, is_so: Callable[[History], bool]) -> None:
        """Wait until what it was told is as wanted. Raises TimeoutError; AssertionError when it
        ended.
        """
        async with asyncio.timeout(WAIT_S):
            while not is_so(self.history):
                assert self._process.returncode is None, self.log_tail()
                await asyncio.sleep(POLL_S)

    def pause(self) -> None:
        """Stop its clock."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> History:
        """Let it close its ledger; return all that it was told. Raises AssertionError when it does
        not end, or not well.
        """
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            status = await asyncio.wait_for(self._process.wait(), WAIT_S)
        except TimeoutError:
            raise AssertionError(f"it did not end in {WAIT_S} s: {self.log_tail()}") from None
        was_ending = bool(self.history.failures)  # a signal may meet it on its way out
        assert status == 0 or (was_ending and status == -signal.SIGTERM), self.log_tail()
        return self.history

    async def ended(self) -> History:
        """Wait until it has ended by itself; return all that it was told."""
        status = await asyncio.wait_for(self._process.wait(), WAIT_S)
        assert status == 0, self.log_tail()
        return self.history

    def log_tail(self) -> str:
        """Return the end of what it printed."""
        return self._log.read_text()[-LOG_TAIL_BYTES:]


@asynccontextmanager
async def writing_process(
    module: str, uri: str, directory: Path, name: str, seed: int, **options: float
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
            *(sys.executable, "-m", module, "--uri", uri, "--history", str(history)),
            *("--seed", str(seed), *words),
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
