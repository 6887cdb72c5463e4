"""A console to measure, as a process of its own, and the times of its pages.

Leaves what is measured to `console_pages`.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import perf_counter
from typing import Final

from aiohttp import ClientSession, ClientTimeout

PAGE_S_MAX: Final = 60.0
MS_PER_S: Final = 1e3
OK: Final = 200


@dataclass(frozen=True, slots=True)
class MeasuredConsole:
    """A running console."""

    http: ClientSession

    async def page(self, path: str) -> str:
        """Return the HTML of a page."""
        async with self.http.get(path) as answer:
            text = await answer.text()
            assert answer.status == OK, f"{path}: {answer.status}"
            return text

    async def page_ms(self, path: str) -> float:
        """Return the time that a page takes, in ms."""
        start = perf_counter()
        await self.page(path)
        return (perf_counter() - start) * MS_PER_S

    async def wait_for(self, path: str, text: str, pause_s: float) -> None:
        """Load a page until it has a text."""
        while text not in await self.page(path):  # noqa: ASYNC110 - each try is a request
            await asyncio.sleep(pause_s)


@asynccontextmanager
async def measured_console(metadata: str) -> AsyncIterator[MeasuredConsole]:
    """Start `quire console`; stop it at the end of the block."""
    words = ("-m", "quire.cli.main", "console", "--port", "0", "--metadata", metadata)
    process = await asyncio.create_subprocess_exec(
        sys.executable, *words, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        address = json.loads(await process.stdout.readline())["address"]
        timeout = ClientTimeout(total=PAGE_S_MAX)
        async with ClientSession(address, timeout=timeout) as http:
            yield MeasuredConsole(http)
    finally:
        process.terminate()
        await process.wait()
