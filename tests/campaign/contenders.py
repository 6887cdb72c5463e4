"""Processes that contend for small ledgers during a campaign, and the outside judge at its end.

Leaves what they do to `contender`, and judging to `tests.judge.linearizability`.
"""

import asyncio
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.judge.linearizability import JudgeError, judge_operations

COUNT: Final = 2
END_S_MAX: Final = 150.0
FINAL_S_MAX: Final = 900.0


class Contenders:
    """All contending processes of one campaign, and the history that they share."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        options: Mapping[str, int],
        code_dir: Callable[[int], Path],
    ) -> None:
        """`code_dir` returns the checkout that a process runs, given its number."""
        self.operations = directory / "operations.jsonl"
        self.complaints: list[str] = []
        self._log = directory / "contender.log"
        self._seed = seed
        self._options = options
        self._code_dir = code_dir
        self._rng = Random(f"{seed}/contenders")
        self._processes: dict[int, Process] = {}
        self._runs = 0

    async def start(self, uri: str) -> None:
        """Start all."""
        for number in range(COUNT):
            self._processes[number] = await self._spawn(uri)

    async def replace_one(self, uri: str) -> None:
        """Kill one in the middle of its calls, and start another."""
        number = self._rng.randrange(COUNT)
        process = self._processes[number]
        if process.returncode is not None:
            self._complain(f"a contender ended by itself: {process.returncode}")
        else:
            process.kill()
            await process.wait()
        self._processes[number] = await self._spawn(uri)

    async def finish(self, uri: str) -> None:
        """End all in order; then recover and read every ledger once."""
        for process in self._processes.values():
            if process.returncode is None:
                process.send_signal(signal.SIGTERM)
        for process in self._processes.values():
            await self._wait(process, END_S_MAX)
        self._processes = {COUNT: await self._spawn(uri, "--final")}
        await self._wait(self._processes[COUNT], FINAL_S_MAX)

    async def kill_all(self) -> None:
        """End each process that still runs."""
        for process in self._processes.values():
            if process.returncode is None:
                process.kill()
                await process.wait()

    async def judge(self) -> dict[str, Any]:
        """Return the verdict of the outside judge; what is not accepted is a complaint."""
        try:
            verdict = await asyncio.to_thread(judge_operations, self.operations)
        except JudgeError as error:
            self.complaints.append(str(error))
            return {"result": "failed", "why": str(error)}
        if verdict.result not in ("accepted", "skipped"):
            self.complaints.append(f"the judge of operations: {verdict.result}")
        return verdict.as_json()

    async def _spawn(self, uri: str, *words: str) -> Process:
        self._runs += 1
        options = {
            "uri": uri,
            "operations": self.operations,
            "name": f"c{self._runs}",
            "seed": f"{self._seed}/{self._runs}",
            **self._options,
        }
        given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
        with self._log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "tests.campaign.contender", *given, *words),
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=log,
                cwd=self._code_dir(self._runs),
            )

    async def _wait(self, process: Process, seconds: float) -> None:
        try:
            status = await asyncio.wait_for(process.wait(), seconds)
        except TimeoutError:
            self._complain(f"a contender did not end within {seconds:.0f} s")
            process.kill()
            await process.wait()
            return
        if status:
            self._complain(f"a contender ended with status {status}")

    def _complain(self, what: str) -> None:
        self.complaints.append(f"{what}: {self._log.read_text()[-2_000:]}")
