"""Process of repair beside a bookie: started with it, started again when it ends, stopped with it.

Leaves repair itself to `quire repair run-worker`. It has a process, and a session with the metadata
service, of its own, so that copying never delays the bookie's event loop.

Invariants: the process ends when the bookie's process ends, also after kill -9. It starts
START_AFTER_S after the bookie, which is then serving, as a rule.
"""

import asyncio
import logging
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from math import ceil
from typing import Final

from bookie.options import BookieOptions
from metadata.cancelling import cancel_and_wait
from quire.errors import LocalClusterError
from quire.local.child_process import ChildProcess, child_variables
from quire.server.server_log import LOGGER

START_AFTER_S: Final = 5.0
AGAIN_AFTER_S: Final = 10.0


@asynccontextmanager
async def repair_beside(options: BookieOptions) -> AsyncIterator[None]:
    """Run a process of repair until the end of the block, if the bookie's options say so."""
    if not options.repair:
        yield
        return
    keeping = asyncio.get_running_loop().create_task(_keep(options))
    try:
        yield
    finally:
        await cancel_and_wait(keeping)


async def _keep(options: BookieOptions) -> None:
    """Run the process until cancelled; start it again when it ends."""
    child = ChildProcess("repair", repair_command(options), None)
    await asyncio.sleep(START_AFTER_S)
    while True:
        try:
            await child.start(child_variables())
            await child.pass_lines_on(lambda _: None)
        except (LocalClusterError, OSError) as error:
            logging.getLogger(LOGGER).warning("repair did not start: %s", error)
        finally:
            await child.stop()
        await asyncio.sleep(AGAIN_AFTER_S)


def repair_command(options: BookieOptions) -> tuple[str, ...]:
    """Return the command of the process beside a bookie with these options."""
    command = (sys.executable, "-m", "quire.cli.main", "repair", "run-worker", "--audit")
    timeout = f"{ceil(options.session_timeout_s)}s"  # repair counts in sessions of writers (9.2)
    flags = ("--metadata", options.metadata, "--session-timeout", timeout, "--die-with-parent")
    return (*command, *flags)
