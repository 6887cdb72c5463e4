"""Makes the syncs of a running process slow or fail, by tracing it; it is not changed itself.

Leaves what to do meanwhile to the test. Where tracing is not allowed, the test is skipped with the
reason.
"""

import asyncio
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

import pytest

ATTACH_S: Final = 10.0
MICROSECONDS: Final = 1_000_000


@asynccontextmanager
async def slow_syncs(process_ids: Sequence[int], delay_s: float) -> AsyncIterator[None]:
    """Delay each fsync and fdatasync of these processes."""
    async with AsyncExitStack() as stack:
        for process_id in process_ids:
            delay = f"delay_enter={int(delay_s * MICROSECONDS)}"
            await stack.enter_async_context(_traced(process_id, delay))
        yield


@asynccontextmanager
async def one_failed_sync(process_id: int) -> AsyncIterator[None]:
    """Let the next fsync or fdatasync of a process fail with EIO; those behind it succeed."""
    async with _traced(process_id, "error=EIO:when=1"):
        yield


@asynccontextmanager
async def _traced(process_id: int, what: str) -> AsyncIterator[None]:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: nothing can be injected")
    injection = f"inject=fsync,fdatasync:{what}"
    tracer = await asyncio.create_subprocess_exec(
        *(strace, "-f", "-o", "/dev/null", "-p", str(process_id)),
        *("-e", "trace=fsync,fdatasync", "-e", injection),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
    )
    try:
        await _wait_until_attached(tracer)
        yield
    finally:
        if tracer.returncode is None:
            tracer.send_signal(signal.SIGINT)  # it lets go of the process
        await tracer.wait()


async def _wait_until_attached(tracer: Process) -> None:
    assert tracer.stderr is not None
    line = (await asyncio.wait_for(tracer.stderr.readline(), ATTACH_S)).decode()
    if "attached" not in line:
        pytest.skip(f"processes cannot be traced here: {line.strip() or 'no reason was given'}")
