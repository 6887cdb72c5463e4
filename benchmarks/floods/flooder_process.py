"""The process of the bad clients, as the script sees it: floods that begin and end.

Leaves what bad clients do to `benchmarks.floods.flooder`.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from benchmarks.floods.flood_job import FloodJob

FULL_S_MAX: Final = 20.0
"""Maximum time that is waited until all bad clients have come."""


class FlooderProcess:
    """A process that floods one server at a time."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def begin(self, job: FloodJob) -> bool:
        """Begin a flood; return whether all its clients have come in time."""
        await self._send(job.as_json())
        try:
            async with asyncio.timeout(FULL_S_MAX):
                return "full" in await self._read()
        except TimeoutError:
            return False

    async def end(self) -> dict[str, object]:
        """End the flood; return its counts."""
        await self._send("")
        while "flood_s" not in (row := await self._read()):
            continue
        return row

    async def _send(self, line: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{line}\n".encode())
        await self._process.stdin.drain()

    async def _read(self) -> dict[str, object]:
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if not line:
            raise RuntimeError("the process of the bad clients has ended: see its errors above")
        row: dict[str, object] = json.loads(line)
        return row


@asynccontextmanager
async def flooder_process() -> AsyncIterator[FlooderProcess]:
    """Start the process; end it at the end of the block."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "benchmarks.floods.flooder",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        yield FlooderProcess(process)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
