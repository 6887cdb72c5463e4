"""Control of a writing process: its start, the signal to begin, and the wait for its end.

Leaves the load to `quire.bench.compare.load`.

Invariant: the writing process never outlives this one: it ends when its standard input ends.
"""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Final

from quire.bench.compare.load import LoadSpec

READY_TIMEOUT_S: Final = 30.0
LINE_BYTES_MAX: Final = 1024 * 1024


class LoadError(Exception):
    """A writing process did not get ready or did not end in order; the text has what it printed."""


class LoadProcess:
    """One writing process."""

    def __init__(self, spec: LoadSpec) -> None:
        self.spec = spec
        self._process: Process | None = None
        self._errors = Path(f"{spec.journal}.errors")

    async def start(self) -> list[str]:
        """Start the process; return its ledger's ensemble once it is ready (empty for a
        successor). Raises LoadError.
        """
        with self._errors.open("wb") as errors:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "quire.bench.compare.load",
                self.spec.as_text(),
                stdin=PIPE,
                stdout=PIPE,
                stderr=errors,
                limit=LINE_BYTES_MAX,
                start_new_session=True,  # Ctrl-C must reach only this process, which stops it
            )
        assert self._process.stdout is not None, "its output is a pipe"
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), READY_TIMEOUT_S)
        except TimeoutError:
            raise LoadError(f"the writer was not ready in time: {self._printed()}") from None
        if not line:
            raise LoadError(f"the writer ended at its start: {self._printed()}")
        ensemble: list[str] = json.loads(line)["ensemble"]
        return ensemble

    def begin(self, moment: float) -> None:
        """Send the moment at which its schedule starts."""
        self._send(f"go {moment!r}\n")

    def take_over(self, moment: float, ledger_id: int) -> None:
        """Make a successor recover a ledger and continue the schedule that began at a moment."""
        self._send(f"take {moment!r} {ledger_id}\n")

    def kill(self) -> None:
        """Kill the process (SIGKILL)."""
        assert self._process is not None, "it was started"
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def wait(self, timeout_s: float) -> int:
        """Wait for its end; return its status. Raises LoadError after `timeout_s`."""
        assert self._process is not None, "it was started"
        try:
            return await asyncio.wait_for(self._process.wait(), timeout_s)
        except TimeoutError:
            raise LoadError(
                f"the writer did not end in {timeout_s:.0f} s: {self._printed()}"
            ) from None

    async def require_success(self, timeout_s: float) -> None:
        """Wait for its end. Raises LoadError, with what it printed, unless its status is 0."""
        status = await self.wait(timeout_s)
        if status != 0:
            raise LoadError(f"the writer ended with status {status}: {self._printed()}")

    async def aclose(self) -> None:
        """End the process if it still runs."""
        if self._process is None:
            return
        if self._process.returncode is None:
            self.kill()
            await self._process.wait()
        if self._process.stdin is not None:
            self._process.stdin.close()

    def _send(self, text: str) -> None:
        assert self._process is not None, "it was started"
        assert self._process.stdin is not None, "its input is a pipe"
        self._process.stdin.write(text.encode())

    def _printed(self) -> str:
        return self._errors.read_text(errors="replace").strip()[-2_000:] or "(it printed nothing)"
