"""Process of one ZooKeeper server.

Leaves Java to `server`, the tasks common to all server processes to `quire.server.process`, and the
command line to `quire.cli`.

Format of standard output: one JSON line once clients are served: {"id", "address", "pid", "java"}.
"""

import asyncio
import os
from functools import partial
from typing import Final

from metadata.errors import EmbeddedServerError, OtherServersDirectoryError
from quire.server.process import ServerProcess, first_of, print_ready, run_server
from quire.server.server_log import ServerLog
from quire.zookeeper.options import ZooKeeperOptions
from quire.zookeeper.server import ZooKeeperServer

KIND: Final = "zookeeper"


def run_zookeeper(options: ZooKeeperOptions) -> int:
    """Run a ZooKeeper server until a signal stops it.

    Returns the process's exit status. A failure is written to standard error.
    """
    failures = (EmbeddedServerError,)
    final = (OtherServersDirectoryError,)
    process = ServerProcess(KIND, options.log_level, options.die_with_parent, failures, final=final)
    return run_server(process, partial(_serve, options))


async def _serve(options: ZooKeeperOptions, stopping: asyncio.Event) -> None:
    log = ServerLog(asyncio.get_running_loop().time)
    server = ZooKeeperServer(options, os.environ, log)
    try:
        await server.start()
        await first_of(server.wait_until_serving(), stopping)
        if not stopping.is_set():
            print_ready(
                {"id": KIND, "address": server.address, "pid": os.getpid(), "java": server.pid}
            )
            await first_of(server.wait_for_failure(), stopping)
    finally:
        await server.stop()
