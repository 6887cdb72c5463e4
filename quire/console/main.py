"""Process of one console: the only place that connects to the real cluster.

Format of standard output: one JSON line once the console serves: {"id", "address", "pid"}, and
"login_token" if one was made for this run.
"""

import asyncio
import os
from functools import partial

from ledger_client.cluster_access import identity_of, open_cluster
from metadata.errors import MetadataError
from quire.console.options import ConsoleOptions
from quire.console.server import KIND, ConsoleServer
from quire.identity.errors import SecurityError
from quire.server.process import ServerProcess, first_of, print_ready, run_server


def run_console(options: ConsoleOptions) -> int:
    """Run a console until a signal stops it.

    Returns the process's exit status. A failure is written to standard error.
    """
    failures = (MetadataError, SecurityError)
    process = ServerProcess(KIND, options.log_level, options.die_with_parent, failures)
    return run_server(process, partial(_serve, options))


async def _serve(options: ConsoleOptions, stopping: asyncio.Event) -> None:
    async with open_cluster(options.metadata) as cluster:
        server = ConsoleServer(options, cluster, identity_of(options.metadata))
        try:
            address = await first_of(server.start(), stopping)
            if address is not None:
                ready: dict[str, object] = {"id": KIND, "address": address, "pid": os.getpid()}
                if server.token:
                    ready["login_token"] = server.token
                print_ready(ready)
                await first_of(server.wait_for_failure(), stopping)
        finally:
            await server.stop()
