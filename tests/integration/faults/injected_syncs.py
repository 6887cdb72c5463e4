"""Slow or failing syncs and writes of a running process, injected by tracing.

The process itself is not changed. Leaves the actions during the fault to the test. Where tracing is
not allowed, the test is skipped with the reason.
"""

import asyncio
import shutil
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.until import WAIT_S

MICROSECONDS: Final = 1_000_000
SYNCS: Final = "fsync,fdatasync"
WRITES: Final = "write,writev,pwrite64,pwritev,pwritev2"
"""A log joins small groups into one pwrite64 and writes large ones by pwritev2; older systems have
pwritev.
"""


@asynccontextmanager
async def slow_syncs(process_ids: Sequence[int], delay_s: float) -> AsyncIterator[None]:
    """Delay each fsync and fdatasync of these processes."""
    async with AsyncExitStack() as stack:
        for process_id in process_ids:
            delay = f"delay_enter={int(delay_s * MICROSECONDS)}"
            await stack.enter_async_context(_traced(process_id, SYNCS, delay))
        yield


@asynccontextmanager
async def one_failed_sync(process_id: int) -> AsyncIterator[None]:
    """Let the next fsync or fdatasync of a process fail with EIO; later ones succeed."""
    async with _traced(process_id, SYNCS, "error=EIO:when=1"):
        yield


@asynccontextmanager
async def one_failed_write(process_id: int, files: Sequence[Path]) -> AsyncIterator[None]:
    """Let the next write of a process to one of these files fail with EIO.

    No byte of it is written; later writes succeed.
    """
    async with _traced(process_id, WRITES, "error=EIO:when=1", files):
        yield


@asynccontextmanager
async def _traced(
    process_id: int, calls: str, what: str, files: Sequence[Path] = ()
) -> AsyncIterator[None]:
    """Inject a fault into each of these system calls, only on the given files if any are given."""
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: nothing can be injected")
    only = [word for file in files for word in ("-P", str(file))]
    tracer = await asyncio.create_subprocess_exec(
        *(strace, "-f", "-o", "/dev/null", "-p", str(process_id)),
        *("-e", f"trace={calls}", "-e", f"inject={calls}:{what}", *only),
        stdin=DEVNULL,
        stdout=DEVNULL,
        stderr=PIPE,
    )
    try:
        await _wait_until_attached(tracer)
        yield
    finally:
        if tracer.returncode is None:
            tracer.send_signal(signal.SIGINT)  # it detaches from the process
        await tracer.wait()


async def _wait_until_attached(tracer: Process) -> None:
    assert tracer.stderr is not None
    line = (await asyncio.wait_for(tracer.stderr.readline(), WAIT_S)).decode()
    if "attached" not in line:
        pytest.skip(f"processes cannot be traced here: {line.strip() or 'no reason was given'}")
