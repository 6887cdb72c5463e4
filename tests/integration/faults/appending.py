"""Handles an appender as a process of its own, and checks at the end what it was told.

Leaves what it does to `appender`, and the check to `tests.campaign.checker`.
"""

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from tests.campaign.checker import CheckReport, check_campaign
from tests.campaign.history import History, HistoryFollower

REPOSITORY: Final = Path(__file__).parents[3]
SEED: Final = 77
WAIT_S: Final = 30.0
POLL_S: Final = 0.02


class AppendingProcess:
    """One running appender, and what it was told so far."""

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

    async def ledger_id(self) -> int:
        """Wait for its ledger; return the id."""
        await self._wait_for(1, ledgers=True)
        return next(iter(self.history.ledgers))

    async def wait_for_acks(self, count: int) -> None:
        """Wait until so many more entries are acknowledged than now."""
        await self._wait_for(self.acked_count + count, ledgers=False)

    def pause(self) -> None:
        """Stop its clock."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        self._process.send_signal(signal.SIGCONT)

    async def stop(self) -> History:
        """Let it close its ledger; return all that it was told."""
        if self._process.returncode is None:
            self._process.send_signal(signal.SIGTERM)
        status = await asyncio.wait_for(self._process.wait(), WAIT_S)
        was_ending = bool(self.history.failures)  # a signal may meet it on its way out
        assert status == 0 or (was_ending and status == -signal.SIGTERM), self._log.read_text()
        return self.history

    async def ended(self) -> History:
        """Wait until it has ended by itself; return all that it was told."""
        status = await asyncio.wait_for(self._process.wait(), WAIT_S)
        assert status == 0, self._log.read_text()
        return self.history

    async def _wait_for(self, count: int, *, ledgers: bool) -> None:
        async with asyncio.timeout(WAIT_S):
            while (len(self.history.ledgers) if ledgers else self.acked_count) < count:
                ended = self._process.returncode
                assert ended is None, (ended, self.history.failures, self._log.read_text())
                await asyncio.sleep(POLL_S)


@asynccontextmanager
async def appending(
    uri: str, directory: Path, *, ensemble: int = 3, ack: int = 2
) -> AsyncIterator[AppendingProcess]:
    """Start an appender; kill it at the end of the block if it still runs."""
    history, log = directory / "history.jsonl", directory / "appender.log"
    with log.open("ab") as errors:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.integration.faults.appender", "--uri", uri),
            *("--history", str(history), "--seed", str(SEED)),
            *("--ensemble", str(ensemble), "--ack", str(ack)),
            stdin=PIPE,
            stdout=DEVNULL,
            stderr=errors,
            cwd=REPOSITORY,
        )
    try:
        yield AppendingProcess(process, history, log)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def check_kept(uri: str, history: History) -> CheckReport:
    """Read everything twice, and require that every promise was kept; recovers what is open."""
    report = await check_campaign(uri, history, SEED, None, lambda _: None)
    assert report.violations == []
    assert history.complaints == []
    return report
