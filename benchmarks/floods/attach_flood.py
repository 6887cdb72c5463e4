"""Uses of ledgers that do not exist, at a bookie that reads the rights to each.

Leaves connections to `benchmarks.floods.bookie_link`.
"""

import asyncio
from collections import deque
from random import SystemRandom
from typing import Final

from benchmarks.floods.bookie_link import BookieLink, frame_of
from benchmarks.floods.crowd import Arrive, Crowd, read_all
from benchmarks.floods.flood_job import FloodRun
from bookie.wire.messages import MASTER_KEY_BYTES, AttachLedger, DetachLedger, ReadLac
from metadata.ids import LedgerId

BATCHES_PER_S: Final = 10
FIRST_ID: Final = 10**15
"""Far above the ids of ledgers that exist."""
RANGE: Final = 10**9
"""Ids that one connection may use."""


async def flood_with_attaches(run: FloodRun) -> None:
    """Attach ledgers at a rate, use each once, and detach the oldest, for a connection may attach
    so many.
    """
    link, size = BookieLink(run.job.target), run.job.size
    rng = SystemRandom()

    async def attach(arrive: Arrive) -> None:
        reader, writer = await link.greeted()
        reading = asyncio.create_task(read_all(reader))
        number = FIRST_ID + rng.randrange(RANGE) * RANGE
        attached = deque[int]()
        arrive()
        try:
            while not reading.done():
                batch = range(number, number + size.per_s // BATCHES_PER_S)
                number = batch.stop
                frames = []
                for ledger_id in map(LedgerId, batch):
                    frames.append(frame_of(1, AttachLedger(ledger_id, bytes(MASTER_KEY_BYTES))))
                    frames.append(frame_of(1, ReadLac(ledger_id, fence=False)))
                attached.extend(batch)
                while len(attached) > size.each:
                    frames.append(frame_of(1, DetachLedger(LedgerId(attached.popleft()))))
                writer.write(b"".join(frames))
                await writer.drain()
                run.counts.requests += len(batch)
                await asyncio.sleep(1 / BATCHES_PER_S)
        finally:
            reading.cancel()
            writer.transport.abort()

    await Crowd(run, rng).run(*[attach] * size.connections)
