"""Processes that contend for small ledgers during a campaign, and the outside judge at its end.

Leaves what they do to `contender`, and judging to `tests.judge.linearizability`.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, Final

from tests.campaign.child import Child
from tests.judge.linearizability import JudgeError, judge_operations

COUNT: Final = 2
FINAL_S_MAX: Final = 900.0


class Contenders:
    """All contending processes of one campaign, and the history that they share."""

    def __init__(
        self,
        directory: Path,
        seed: int,
        options: Mapping[str, object],
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
        self._processes: dict[int, Child] = {}
        self._runs = 0

    async def start(self, uri: str) -> None:
        """Start all."""
        for number in range(COUNT):
            self._processes[number] = await self._spawn(uri)

    async def replace_one(self, uri: str) -> None:
        """Kill one in the middle of its calls, and start another."""
        number = self._rng.randrange(COUNT)
        process = self._processes[number]
        if process.status is not None:
            text = f"a contender ended by itself: {process.status}: {process.log_tail()}"
            self.complaints.append(text)
        await process.kill()
        self._processes[number] = await self._spawn(uri)

    async def finish(self, uri: str) -> None:
        """End all in order; then recover and read every ledger once."""
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            self.complaints += filter(None, [await process.ended()])
        self._processes = {COUNT: await self._spawn(uri, is_final=True)}
        self.complaints += filter(None, [await self._processes[COUNT].ended(FINAL_S_MAX)])

    async def kill_all(self) -> None:
        """End each process that still runs."""
        for process in self._processes.values():
            await process.kill()

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

    async def _spawn(self, uri: str, *, is_final: bool = False) -> Child:
        self._runs += 1
        options = {
            "uri": uri,
            "operations": self.operations,
            "name": f"c{self._runs}",
            "seed": f"{self._seed}/{self._runs}",
            "final": is_final,
            **self._options,
        }
        return await Child.start(
            "a contender",
            "tests.campaign.contender",
            options,
            self._log,
            code_dir=self._code_dir(self._runs),
        )
