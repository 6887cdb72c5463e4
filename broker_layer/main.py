"""Process of one broker: the only place that creates a real store and rng.

Leaves the work of a broker to `broker_process`, the work of every server process to
`quire.server.process`, and the command line to `quire`.

Format of standard output: one JSON line once the broker serves: {"id", "address", "listeners",
"admin", "pid"}.
"""

import asyncio
import os
import random
from dataclasses import replace
from functools import partial
from typing import Final

from broker_layer.broker_process import (
    BrokerAddresses,
    BrokerEnvironment,
    BrokerProcess,
    client_config,
)
from broker_layer.client_events import note_event
from broker_layer.options import BrokerOptions
from broker_layer.peer import PeerAccess
from ledger_client import LedgerClient
from ledger_client.cluster_access import identity_of
from ledger_client.errors import LedgerError
from metadata.errors import MetadataError
from metadata.registry.cluster import open_cluster_store
from quire.distribution import build
from quire.identity.errors import ClientFileError, SecurityError
from quire.server.descriptors import share_descriptors
from quire.server.process import (
    ServerProcess,
    first_of,
    print_ready,
    run_server,
    wall_clock_ms,
)
from quire.server.server_log import ServerLog

COLLECT_AFTER_OBJECTS: Final = 200_000
"""Number of new objects after which the garbage collector runs. A small Produce in progress has
about 25 tracked objects, and some thousand can be in progress. At 20,000 the collector took 11 % of
the time with 1,000 partitions, and found 3 objects per thousand batches.
"""
OWN_DESCRIPTORS: Final = 1_152
"""File descriptors that a broker needs in addition to accepted connections: 1,000 connections to
bookies and other brokers, the metadata service, the admin port, and connections being refused.
"""
OWN_SHARE_MAX: Final = 0.5
"""Share of a low limit that is kept for them: a small cluster has few bookies, and a broker that
accepts no more than one connection serves no client.
"""


def run_broker(options: BrokerOptions) -> int:
    """Run a broker until a request to stop; return the exit status.

    A failure is written to standard error.
    """
    failures = (LedgerError, MetadataError, SecurityError)
    connections_max, warning = share_descriptors(
        options.connections_max, OWN_DESCRIPTORS, own_share_max=OWN_SHARE_MAX
    )
    options = replace(options, connections_max=connections_max)
    process = ServerProcess(
        "broker",
        options.log_level,
        options.die_with_parent,
        failures,
        COLLECT_AFTER_OBJECTS,
        warning,
    )
    return run_server(process, partial(_serve, options))


async def _serve(options: BrokerOptions, stopping: asyncio.Event) -> None:
    rng = random.Random(os.urandom(16))
    store = await open_cluster_store(
        options.metadata, rng=rng, session_timeout_s=options.session_timeout_s
    )
    now = asyncio.get_running_loop().time
    client = LedgerClient(
        options.metadata,
        config=client_config(options),
        on_event=partial(note_event, ServerLog(now)),
    )
    process = BrokerProcess(
        BrokerEnvironment(
            options,
            store,
            client,
            rng,
            wall_clock_ms,
            now,
            build(),
            random.SystemRandom(),
            _peer_access(options),
        )
    )
    try:
        serving = await first_of(process.start(), stopping)
        if serving is not None:
            _print_ready(serving)
            await first_of(process.wait_for_failure(), stopping)
    finally:
        await process.stop()
        await client.aclose()
        await store.aclose()


def _peer_access(options: BrokerOptions) -> PeerAccess:
    """Return how connections to other brokers begin. Raises SecurityError."""
    listener = options.peer_listener
    protocol = options.protocols[listener]
    identity = identity_of(options.metadata)
    access = PeerAccess(
        identity.contexts if protocol.uses_tls else None,
        identity.sasl if protocol.uses_logins else None,
    )
    for is_needed, has_it, table in (
        (protocol.uses_tls, access.ssl is not None, "[tls]"),
        (protocol.uses_logins, access.sasl is not None, "[sasl]"),
    ):
        if is_needed and not has_it:
            raise ClientFileError(
                f"brokers connect to each other at the listener {listener}, which needs {table} in"
                " the client's file: name such a file by ?client=FILE in metadata"
            )
    return access


def _print_ready(serving: BrokerAddresses) -> None:
    print_ready(
        {
            "id": serving.broker_id,
            "address": serving.address,
            "listeners": {bind.name: bind.address for bind in serving.listeners},
            "admin": serving.admin_url,
            "pid": os.getpid(),
        }
    )
