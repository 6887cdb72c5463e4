"""Process of one gateway: the only place that builds its real store and rng.

Format of standard output: one JSON line once the gateway serves: {"id", "address", "admin", "pid"}.
"""

import asyncio
import os
import platform
import random
from dataclasses import replace
from functools import partial
from typing import Final

from metadata.errors import MetadataError
from metadata.registry.cluster import require_cluster
from metadata.store.zookeeper.store import open_store
from quire.gateway.gateway_process import KIND, GatewayProcess
from quire.gateway.options import GatewayOptions
from quire.identity.errors import SecurityError
from quire.server.descriptors import share_descriptors
from quire.server.process import ServerProcess, first_of, print_ready, run_server

OWN_DESCRIPTORS: Final = 128
"""Number of descriptors besides clients' connections."""


def run_gateway(options: GatewayOptions) -> int:
    """Run a gateway until a signal stops it.

    Returns the process's exit status. A failure is written to standard error.
    """
    connections_max, warning = share_descriptors(options.connections_max, OWN_DESCRIPTORS)
    options = replace(options, connections_max=connections_max)
    process = ServerProcess(
        KIND,
        options.log_level,
        options.die_with_parent,
        (MetadataError, SecurityError),
        warning=warning,
    )
    return run_server(process, partial(_serve, options))


async def _serve(options: GatewayOptions, stopping: asyncio.Event) -> None:
    rng = random.Random(os.urandom(16))
    store = await open_store(
        options.metadata, rng=rng, session_timeout_s=options.session_timeout_s, make_root=False
    )
    process = GatewayProcess(
        options,
        store,
        rng,
        random.SystemRandom(),
        lambda: store.session_timeout_s,
        host_name=platform.node(),
    )
    try:
        await require_cluster(store)
        serving = await first_of(process.start(), stopping)
        if serving is not None:
            print_ready(
                {
                    "id": KIND,
                    "address": serving.address,
                    "admin": serving.admin_url,
                    "pid": os.getpid(),
                }
            )
            await first_of(process.wait_for_failure(), stopping)
    finally:
        await process.stop()
        await store.aclose()
