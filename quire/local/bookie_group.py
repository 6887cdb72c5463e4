"""Processes of bookies on one machine: several bookies, each restarted, and repair beside a bookie.

Leaves the options of the bookies to `bookie.options`, a bookie itself to `quire bookie run`, and
repair to `quire repair run-worker`: it has a process, and a session with the metadata service, of
its own, so that copying never delays the bookie's event loop.

A bookie that ends is started again after a pause. The pause doubles from RESTART_PAUSE_MIN_S to
RESTART_PAUSE_MAX_S, and is reset once the bookie served for STEADY_S. The other bookies continue.

Format of standard output: the JSON line of each bookie, each time that it serves. The bookies write
their logs to the standard error that they share with this process.

Invariants: the bookies end when this process ends, and repair ends when its bookie ends, also after
kill -9; a directory is formatted only at the first start, because at a later one an empty directory
means that a disk is missing. Repair starts START_AFTER_S after the bookie, which is then serving,
as a rule.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, TextIO

from bookie.options import BOOKIE, BookieOptions
from metadata.cancelling import cancel_and_wait
from quire.errors import LocalClusterError
from quire.local.child_process import ChildProcess, child_variables
from quire.repair.options import REPAIR, RepairOptions
from quire.server.server_log import LOGGER, ServerLog

RESTART_PAUSE_MIN_S: Final = 1.0
RESTART_PAUSE_MAX_S: Final = 60.0
FAILURES_REPORTED: Final = 5
"""Number of ends in a row after which the log reports that the bookie keeps failing."""
STEADY_S: Final = 60.0
"""Time of service after which a bookie starts again with the shortest pause, in seconds."""
STOP_MARGIN_S: Final = 30.0
"""Time that an orderly stop may take in addition to the time that a bookie waits for requests."""


@dataclass(slots=True)
class RestartPause:
    """The pause before the next start of one bookie."""

    failures: int = 0
    """Number of ends in a row without STEADY_S of service."""

    def after_end(self, served_s: float) -> float:
        """Count the end of a process that served for `served_s`; return the pause in seconds."""
        self.failures = 1 if served_s >= STEADY_S else self.failures + 1
        doublings = min(self.failures - 1, 30)
        return min(RESTART_PAUSE_MIN_S * 2.0**doublings, RESTART_PAUSE_MAX_S)


class BookieGroup:
    """The bookies of one machine. `run` returns after the event is set and all have ended."""

    def __init__(
        self,
        bookies: Sequence[BookieOptions],
        prefix: str | None,
        results: TextIO,
        log: ServerLog,
    ) -> None:
        """`prefix` begins the id of each bookie whose directory is empty at the first start; with
        None an empty directory is an error of that bookie.
        """
        self._bookies = tuple(bookies)
        self._prefix = prefix
        self._results = results
        self._log = log

    async def run(self, stopping: asyncio.Event) -> bool:
        """Run the bookies; return whether all of them ended in order."""
        tasks = [asyncio.ensure_future(self._keep(bookie, stopping)) for bookie in self._bookies]
        try:
            return all(await asyncio.gather(*tasks))
        finally:
            await cancel_and_wait(*tasks)

    async def _keep(self, options: BookieOptions, stopping: asyncio.Event) -> bool:
        """Run one bookie until the event is set; return whether its last process ended in order."""
        clock, pause, prefix = asyncio.get_running_loop().time, RestartPause(), self._prefix
        while True:
            child = _child(options, prefix)
            prefix = None
            await child.start(child_variables())
            served_since = clock()
            try:
                status = await self._until_end(child, stopping, self._print)
            finally:
                await child.stop()
            if stopping.is_set():
                return status == 0
            pause_s = pause.after_end(clock() - served_since)
            self._log_end(options, status, pause.failures, pause_s)
            if await _is_set_within(stopping, pause_s):
                return True

    async def _until_end(
        self, child: ChildProcess, stopping: asyncio.Event, pass_line: Callable[[str], None]
    ) -> int:
        """Forward what a process prints until it ends; stop it when the event is set."""
        reading = asyncio.ensure_future(child.pass_lines_on(pass_line))
        stop = asyncio.ensure_future(stopping.wait())
        try:
            await asyncio.wait((reading, stop), return_when=asyncio.FIRST_COMPLETED)
            if stopping.is_set():
                await child.stop()
            return await child.wait_ended()
        finally:
            stop.cancel()
            await asyncio.gather(reading, stop, return_exceptions=True)

    def _print(self, line: str) -> None:
        self._results.write(line)
        self._results.flush()

    def _log_end(self, options: BookieOptions, status: int, failures: int, pause_s: float) -> None:
        what = {"data_dir": options.data_dir, "status": status, "restart_in_s": pause_s}
        self._log.warning("bookie ended", **what)
        if failures >= FAILURES_REPORTED:
            advice = (
                f"it ended {failures} times in a row and is started again every"
                f" {RESTART_PAUSE_MAX_S:.0f} s at the latest: its log above says why. If its disk"
                " is lost, remove its table from the file and add a new bookie"
            )
            self._log.failure("bookie keeps failing", None, advice=advice, **what)


def _child(options: BookieOptions, prefix: str | None) -> ChildProcess:
    command = [sys.executable, "-m", "quire.cli.main", "bookie", "run", *BOOKIE.flags_of(options)]
    if not options.die_with_parent:
        command.append("--die-with-parent")
    if prefix is not None:
        command.append(f"--format-if-empty={prefix}")
    stop_timeout_s = options.drain_timeout_s + STOP_MARGIN_S
    return ChildProcess(options.data_dir, command, None, stop_timeout_s=stop_timeout_s)


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


START_AFTER_S: Final = 5.0
AGAIN_AFTER_S: Final = 10.0


@asynccontextmanager
async def repair_beside(options: BookieOptions) -> AsyncIterator[None]:
    """Run a process of repair until the end of the block, if the bookie's options say so."""
    if not options.repair:
        yield
        return
    keeping = asyncio.get_running_loop().create_task(_keep(options))
    try:
        yield
    finally:
        await cancel_and_wait(keeping)


async def _keep(options: BookieOptions) -> None:
    """Run the process until cancelled; start it again when it ends."""
    child = ChildProcess("repair", repair_command(options), None)
    await asyncio.sleep(START_AFTER_S)
    while True:
        try:
            await child.start(child_variables())
            await child.pass_lines_on(lambda _: None)
        except (LocalClusterError, OSError) as error:
            logging.getLogger(LOGGER).warning("repair did not start: %s", error)
        finally:
            await child.stop()
        await asyncio.sleep(AGAIN_AFTER_S)


def repair_command(options: BookieOptions) -> tuple[str, ...]:
    """Return the command of the process beside a bookie with these options."""
    own = RepairOptions(
        metadata=options.metadata,
        session_timeout_s=options.session_timeout_s,  # repair counts in sessions of writers (9.2)
        audit=True,
        die_with_parent=True,
    )
    command = (sys.executable, "-m", "quire.cli.main", "repair", "run-worker")
    return (*command, *REPAIR.flags_of(own))
