"""Runs one server process of a local cluster: start, pause, kill, stop, and the tail of its log.

Leaves what the process is, and how it shows that it is ready, to `quire.local_cluster`.

Invariants: the child's standard input is a pipe whose other end only this process holds, so a
server that stops when its input ends never outlives us, however we end. Its standard output carries
one line, when it is ready; what it has to say otherwise goes to its log file, or to our standard
error.
"""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from quire.errors import LocalClusterError

LOG_TAIL_BYTES: Final = 4_000
STOP_TIMEOUT_S: Final = 15.0


OWN_VARIABLES: Final = "QUIRE_"


def child_variables() -> dict[str, str]:
    """Return our environment without the variables that would configure a server of ours. Children
    import the same Quire as this process, and nothing from the working directory (decision 0015).
    """
    ours = {name: value for name, value in os.environ.items() if not name.startswith(OWN_VARIABLES)}
    paths = filter(None, (str(Path(__file__).parents[2]), ours.get("PYTHONPATH")))
    return ours | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


class ChildProcess:
    """One program, started at most once at a time."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log_path: Path | None,
        *,
        stop_timeout_s: float = STOP_TIMEOUT_S,
    ) -> None:
        """With no `log_path` the program writes to our standard error."""
        self.name = name
        self._stop_timeout_s = stop_timeout_s
        self.log_path = log_path
        self._command = tuple(command)
        self._process: Process | None = None
        self._is_paused = False

    @property
    def pid(self) -> int:
        """The process id of the latest start."""
        assert self._process is not None, "it was never started"
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether it was started and has not ended; a paused one is running."""
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
            self._process = await asyncio.create_subprocess_exec(
                *self._command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=log,
                env=variables,
                start_new_session=True,  # a Ctrl-C at the terminal is for us: we stop it in order
            )
        self._is_paused = False

    async def first_line(self, timeout_s: float) -> str:
        """Return the first line that it prints. Raises LocalClusterError, with the log's end, when
        it ends instead, or prints none in time.
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
        """Hand over each line that it prints, until it closes its standard output."""
        assert self._process is not None, "it was never started"
        assert self._process.stdout is not None, "its output is a pipe"
        while line := await self._process.stdout.readline():
            take(line.decode(errors="replace"))

    def kill(self) -> None:
        """End it with SIGKILL, now."""
        self._signal(signal.SIGKILL)
        self._is_paused = False

    def pause(self) -> None:
        """Stop its clock with SIGSTOP: it keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)
        self._is_paused = True

    def resume(self) -> None:
        """Let it go on with SIGCONT."""
        self._signal(signal.SIGCONT)
        self._is_paused = False

    async def stop(self) -> None:
        """End it in order, with SIGTERM; with SIGKILL after `stop_timeout_s`. No-op once ended."""
        if self._process is None:
            return
        if self.is_running:
            with contextlib.suppress(LocalClusterError):  # it ended, and we are about to be told
                self._signal(signal.SIGTERM)
                if self._is_paused:
                    self.resume()
        try:
            await asyncio.wait_for(self._process.wait(), self._stop_timeout_s)
        except TimeoutError:
            self.kill()
        await self.wait_ended()

    async def wait_ended(self) -> int:
        """Wait until it has ended; return its exit status."""
        assert self._process is not None, "it was never started"
        status = await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()
        return status

    def log_tail(self) -> str:
        """Return the end of what it printed, for messages."""
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
        """Build the error that says what went wrong, with the tail of the log."""
        if self.log_path is None:
            return LocalClusterError(f"{self.name} {what}")
        tail = self.log_tail() or "(nothing)"
        return LocalClusterError(f"{self.name} {what}; its log, {self.log_path}, ends:\n{tail}")

    def _signal(self, number: signal.Signals) -> None:
        if not self.is_running:
            raise LocalClusterError(f"{self.name} does not run")
        try:
            os.kill(self.pid, number)
        except ProcessLookupError:  # the end of a child is told to the loop a little later
            raise LocalClusterError(f"{self.name} does not run") from None
