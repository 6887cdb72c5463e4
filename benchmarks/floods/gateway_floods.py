"""Watches at a gateway: as many as a connection may have, also of clients that leave.

Leaves the requests to `metadata.gateway`.
"""

import asyncio
import itertools
import os
from collections.abc import Callable
from typing import Final

from benchmarks.floods.crowd import COME_AGAIN_S
from benchmarks.floods.flood_job import FloodRun
from benchmarks.processes import host_and_port
from metadata.errors import MetadataError
from metadata.gateway.codec import welcome_of
from metadata.gateway.connection import GatewayConnection, connect
from metadata.gateway.messages import PROTOCOL_VERSION, Hello, Ping, Watch
from quire.identity.client_file import read_client_file

SESSION_MS: Final = 60_000
BATCHES_PER_S: Final = 20
STAY_S: Final = 1.0
"""Time after which the client that came first leaves, and another one comes."""


async def gateway_session(
    address: str, client_file: str, on_event: Callable[[int], None] = lambda _: None
) -> GatewayConnection:
    """Connect to a gateway and begin a session. Raises OSError, MetadataError."""
    context = read_client_file(client_file).context
    host, port = host_and_port(address)
    connection = await connect(host, port, context, on_event, lambda _: None)
    hello = Hello(1, PROTOCOL_VERSION, 0, b"", SESSION_MS, "flood")
    welcome_of(await connection.call(hello))
    return connection


async def flood_with_watches(run: FloodRun) -> None:
    """Fill connections with watches; then one after the other leaves, and a new one is filled."""
    held: list[GatewayConnection] = []
    names = itertools.count()
    try:
        while True:
            try:
                held.append(await _filled(run, names))
            except (OSError, MetadataError):
                run.counts.refused += 1
                run.full()
                await asyncio.sleep(COME_AGAIN_S)
            if len(held) >= run.job.size.connections:
                run.full()
                await asyncio.sleep(STAY_S)
                first = held.pop(0)
                run.counts.cut += not first.is_open
                first.abort()
    finally:
        for connection in held:
            connection.abort()


async def _filled(run: FloodRun, names: "itertools.count[int]") -> GatewayConnection:
    """Return a connection with watches, which were sent at the rate of the flood."""
    size, target = run.job.size, run.job.target
    run.counts.opened += 1
    connection = await gateway_session(target.gateway, target.client_file)
    batch = max(1, size.per_s // BATCHES_PER_S)
    try:
        for start in range(0, size.each, batch):
            for number in range(start, min(start + batch, size.each)):
                path = f"/ledgers/{next(names)}-{os.getpid()}"
                connection.send(Watch(number, path, of_children=False))
                run.counts.requests += 1
            await connection.call(Ping())
            await asyncio.sleep(1 / BATCHES_PER_S)
    except BaseException:
        connection.abort()
        raise
    return connection
