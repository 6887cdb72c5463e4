"""Connections that never send a byte, to ports that wait for the begin of TLS.

Leaves when they come again to `benchmarks.floods.crowd`.
"""

import asyncio
from functools import partial
from random import Random
from typing import Final

from benchmarks.floods.crowd import Arrive, Crowd
from benchmarks.floods.flood_job import BAD_HOST, FloodRun
from benchmarks.processes import host_and_port

REFUSED_S: Final = 1.0
"""A connection that is closed earlier counts as refused, a later one as cut."""


async def flood_with_handshakes(run: FloodRun) -> None:
    """Take the places for handshakes of a broker's port."""
    await _flood(run, run.job.target.broker)


async def flood_admin(run: FloodRun) -> None:
    """Take the connections and the descriptors of an admin port."""
    await _flood(run, run.job.target.admin)


async def _flood(run: FloodRun, address: str) -> None:
    act = partial(_be_silent, *host_and_port(address))
    await Crowd(run, Random(1)).run(*[act] * run.job.size.connections)


async def _be_silent(host: str, port: int, arrive: Arrive) -> None:
    reader, writer = await asyncio.open_connection(host, port, local_addr=(BAD_HOST, 0))
    try:
        try:
            async with asyncio.timeout(REFUSED_S):
                await reader.read(1)
        except TimeoutError:
            arrive()
            await reader.read(1)
    finally:
        writer.transport.abort()
