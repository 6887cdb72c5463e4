"""Handle of a process that appends to ledgers, and of its history so far.

Leaves the appends to `writer`, and the check of the history to `checker`.
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
                assert self._process.returncode is None, self._how_it_ended()
                await asyncio.sleep(POLL_S)

    def pause(self) -> None:
        """Pause its process."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume its process."""
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> History:
        """Let it close its ledger; return its history.

        Raises AssertionError if it does not end, or ends with an error.
        """
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        try:
            status = await asyncio.wait_for(self._process.wait(), WAIT_S)
        except TimeoutError:
            raise AssertionError(f"it did not end in {WAIT_S} s: {self.log_tail()}") from None
        was_ending = bool(self.history.failures)  # the signal may arrive while the process ends
        assert status == 0 or (was_ending and status == -signal.SIGTERM), self.log_tail()
        return self.history

    async def ended(self) -> History:
        """Wait until it has ended by itself; return its history."""
        status = await asyncio.wait_for(self._process.wait(), WAIT_S)
        assert status == 0, self.log_tail()
        return self.history

    def _how_it_ended(self) -> str:
        return f"the writer ended; its errors: {self.history.errors}; its output: {self.log_tail()}"

    def log_tail(self) -> str:
        """Return the end of its output."""
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
