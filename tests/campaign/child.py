"""One module of the tests that runs as a process beside a campaign: its start, and its end.

Leaves its work to the module, which ends with this process by `orphans`.
"""

import asyncio
import contextlib
import json
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Self

REPOSITORY: Final = Path(__file__).parents[2]
END_S_MAX: Final = 150.0
CHECK_S_MAX: Final = 3600.0
LOG_TAIL_BYTES: Final = 2_000


class Child:
    """One such process; `start` makes it."""

    def __init__(self, name: str, process: Process, log: Path) -> None:
        self._name = name
        self._process = process
        self._log = log

    @classmethod
    async def start(
        cls,
        name: str,
        module: str,
        options: Mapping[str, object],
        log: Path,
        *,
        code_dir: Path = REPOSITORY,
        has_output: bool = False,
    ) -> Self:
        """Start a module of the checkout in `code_dir`. An option that is true is a flag, and one
        that is None or false is left out. The standard error is added to the log.
        """
        words: list[str] = []
        for key, value in options.items():
            if value is not None and value is not False:
                words.append(f"--{key.replace('_', '-')}")
                words += [] if value is True else [str(value)]
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", module, *words),
                stdin=PIPE,
                stdout=PIPE if has_output else DEVNULL,
                stderr=errors,
                cwd=code_dir,
            )
        return cls(name, process, log)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    @property
    def status(self) -> int | None:
        """Its exit status; None while it runs."""
        return self._process.returncode

    def log_tail(self) -> str:
        """Return the end of its log."""
        return self._log.read_text()[-LOG_TAIL_BYTES:]

    def pause(self) -> None:
        """Pause it (SIGSTOP)."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Resume it (SIGCONT)."""
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Let it end in order (SIGTERM), if it still runs."""
        if self.status is None:
            self._process.send_signal(signal.SIGTERM)

    async def kill(self) -> None:
        """Kill it (SIGKILL), if it still runs, and wait for its end."""
        if self.status is None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()

    async def ended(self, seconds: float = END_S_MAX, *fine: int) -> str:
        """Wait for its end, and kill it after this time; return a complaint, or an empty text if
        its status is 0 or one of `fine`.
        """
        try:
            await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            await self.kill()
            return f"{self._name} did not end within {seconds:.0f} s"
        return self.failure(*fine)

    def failure(self, *fine: int) -> str:
        """Return a complaint about its status, or an empty text."""
        if self.status in (0, *fine):
            return ""
        return f"{self._name} ended with status {self.status}: {self.log_tail()}"

    async def result(self) -> tuple[dict[str, Any], str]:
        """Wait for its end; return the JSON object that it printed, and a complaint, or an empty
        text.
        """
        try:
            output, _ = await asyncio.wait_for(self._process.communicate(), CHECK_S_MAX)
        except TimeoutError:
            await self.kill()
            return {}, f"{self._name} did not end within {CHECK_S_MAX:.0f} s"
        if output:
            return json.loads(output), ""
        return {}, self.failure() or f"{self._name} printed nothing"
