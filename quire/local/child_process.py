"""One server process of a local cluster: start, pause, kill, stop, and the tail of its log.

Leaves the choice of the program, and the check that it is ready, to its users.

Invariants: the child's standard input is a pipe whose other end only this process holds, so a
server that stops when its input ends never outlives this process, however that ends. Its standard
output has one line, when it is ready; all other output goes to its log file, or to the standard
error of this process.
"""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Final

from quire.errors import LocalClusterError

LOG_TAIL_BYTES: Final = 4_000
STOP_TIMEOUT_S: Final = 15.0


OWN_VARIABLES: Final = "QUIRE_"


def child_variables() -> dict[str, str]:
    """Return this process's environment without the variables that configure Quire's servers.

    Children import the same Quire as this process, and nothing from the working directory
    (decision 0015).
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
    paths = filter(None, (str(Path(__file__).parents[2]), own.get("PYTHONPATH")))
    return own | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


class ChildProcess:
    """One program, with at most one running process."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_path: Path | None,
        *,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        """Without `log_path` the program writes to the standard error of this process."""
        self.name = name
        self._stop_timeout_s = stop_timeout_s
        self.log_path = log_path
        self._command = tuple(command)
        self._process: Process | None = None
        self._is_paused = False

    @property
    def pid(self) -> int:
        """Process id of the latest start."""
        assert self._process is not None, "it was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended; a paused process is running."""
        return self._process is not None and self._process.returncode is None

    async def start(self, variables: Mapping[str, str]) -> None:
        """Start the program with this environment. Raises LocalClusterError if it runs already."""
        if self.is_running:
            raise LocalClusterError(f"{self.name} runs already, as process {self.pid}")
        with contextlib.ExitStack() as files:
            log = None
            if self.log_path is not None:
                self.log_path.parent.mkdir(parents=True, exist_ok=True)
                log = files.enter_context(self.log_path.open("ab"))
            self._process = await self._spawn(variables, log)
        self._is_paused = False

    async def _spawn(self, variables: Mapping[str, str], log: IO[bytes] | None) -> Process:
        return await asyncio.create_subprocess_exec(
            *self._command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=log,
            env=variables,
            start_new_session=True,  # Ctrl-C must reach only this process
        )

    async def first_line(self, timeout_s: float) -> str:
        """Return the first line that the process prints. Raises LocalClusterError, with the log's
        end, if it ends instead, or prints no line in time.
        """
        assert self._process is not None, "it was never started"
        assert self._process.stdout is not None, "its output is a pipe"
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), timeout_s)
        except TimeoutError:
            raise self.failure(f"was not ready within {timeout_s:.0f} s") from None
        if not line:
            status = await self._process.wait()
            raise self.failure(f"ended with status {status} instead of getting ready")
        return line.decode(errors="replace").strip()

    async def pass_lines_on(self, take: Callable[[str], None]) -> None:
        """Pass each line that the process prints to `take`, until it closes its standard output."""
        assert self._process is not None, "it was never started"
        assert self._process.stdout is not None, "its output is a pipe"
        while line := await self._process.stdout.readline():
            take(line.decode(errors="replace"))

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        self._signal(signal.SIGKILL)
        self._is_paused = False

    def pause(self) -> None:
        """Pause the process (SIGSTOP): it keeps its connections but does not respond."""
        self._signal(signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Resume the process (SIGCONT)."""
        self._signal(signal.SIGCONT)
        self._is_paused = False

    async def stop(self) -> None:
        """Stop the process with SIGTERM, or with SIGKILL after `stop_timeout_s`. No-op once it has
        ended.
        """
        if self._process is None:
            return
        if self.is_running:
            with contextlib.suppress(LocalClusterError):  # it ended; the wait below returns
                self._signal(signal.SIGTERM)
                if self._is_paused:
                    self.resume()
        try:
            await asyncio.wait_for(self._process.wait(), self._stop_timeout_s)
        except TimeoutError:
            self.kill()
        await self.wait_ended()

    async def wait_ended(self) -> int:
        """Wait until the process has ended; return its exit status."""
        assert self._process is not None, "it was never started"
        status = await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return status

    def log_tail(self) -> str:
        """Return the end of its log, for messages."""
        if self.log_path is None:
            return ""
        try:
            with self.log_path.open("rb") as log:
                log.seek(0, os.SEEK_END)
                log.seek(max(0, log.tell() - LOG_TAIL_BYTES))
                return log.read().decode(errors="replace").strip()
        except OSError:
            return ""

    def failure(self, what: str) -> LocalClusterError:
        """Return an error with this text and the tail of the log."""
        if self.log_path is None:
            return LocalClusterError(f"{self.name} {what}")
        tail = self.log_tail() or "(nothing)"
        return LocalClusterError(f"{self.name} {what}; its log, {self.log_path}, ends:\n{tail}")

    def _signal(self, number: signal.Signals) -> None:
        if not self.is_running:
            raise LocalClusterError(f"{self.name} does not run: start it first")
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:  # the event loop has not noticed its end yet
            raise LocalClusterError(f"{self.name} does not run: start it first") from None
