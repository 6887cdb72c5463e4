"""A console process, and a login in it.

Leaves the cluster to `sample_cluster`, and pages to `watched_page`.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from tests.integration.quire.command import TIMEOUT_S, start_quire


@dataclass(frozen=True, slots=True)
class RunningConsole:
    """A console that serves."""

    address: str
    """Without a slash at its end."""
    token: str
    """Empty if it needs no login."""


@asynccontextmanager
async def running_console(metadata: str, *options: str) -> AsyncIterator[RunningConsole]:
    """Start `quire console`; stop it at the end."""
    process = start_quire("console", "--port", "0", *options, metadata=metadata)
    assert process.stdout is not None
    try:
        told = json.loads(await asyncio.to_thread(process.stdout.readline))
        yield RunningConsole(told["address"].rstrip("/"), told.get("login_token", ""))
    finally:
        process.terminate()
        try:
            await asyncio.to_thread(process.communicate, timeout=TIMEOUT_S)
        finally:
            process.kill()
