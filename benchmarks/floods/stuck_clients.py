"""Clients that keep a bookie busy: silent, slow, with large announcements, or without reads.

Leaves when they come again to `benchmarks.floods.crowd`, and the ledger that they read, which is
their own, to `benchmarks.floods.flooded_cluster`.
"""

import asyncio
from collections.abc import Sequence
from enum import StrEnum
from random import Random
from typing import Final

from benchmarks.floods.bookie_link import BookieLink, Streams, frame_of
from benchmarks.floods.crowd import Arrive, Crowd
from benchmarks.floods.flood_job import FloodRun
from benchmarks.floods.kinds import ENTRIES
from bookie.wire.frames import (
    BODY_BYTES_AT_FIRST,
    FIRST_FRAME_BYTES_MAX,
    FRAME_BYTES_MAX,
    RECEIVE_BUFFER_BYTES,
    FrameKind,
    frame_header,
)
from bookie.wire.messages import AttachLedger, ReadEntries, ReadLac, Request, WaitLac
from metadata.ids import EntryId, LedgerId

DRIP_PERIOD_S: Final = 1.0
ENTRIES_OF_A_READ: Final = 8
POLL_WAIT_MS_MAX: Final = 5_000


class StuckKind(StrEnum):
    """Behaviour of a stuck client."""

    SILENT = "silent"
    """Never says hello."""
    DRIP = "drip"
    """Sends one byte per second: of a hello, or of a frame after it."""
    ANNOUNCE = "announce"
    """Announces the largest frame, and sends a small part of it."""
    POLL = "poll"
    """Opens many long polls, moves the LAC, which wakes them, and reads no answer."""


CONNECTION_BYTES_MAX: Final = {
    StuckKind.SILENT: 2 * RECEIVE_BUFFER_BYTES,
    StuckKind.DRIP: 2 * RECEIVE_BUFFER_BYTES + FIRST_FRAME_BYTES_MAX,
    StuckKind.ANNOUNCE: 2 * RECEIVE_BUFFER_BYTES + 2 * BODY_BYTES_AT_FIRST,
}
"""Maximum memory that the bookie's limits allow one connection that sends no request."""


async def flood_with_stuck(run: FloodRun) -> None:
    """Connect as many clients of each kind."""
    clients = StuckClients(run)
    share = run.job.size.connections // len(StuckKind)
    acts = {
        StuckKind.SILENT: clients.be_silent,
        StuckKind.DRIP: clients.drip,
        StuckKind.ANNOUNCE: clients.announce,
        StuckKind.POLL: clients.poll,
    }
    await Crowd(run, Random(1)).run(*[act for act in acts.values() for _ in range(share)])


async def flood_with_reads(run: FloodRun) -> None:
    """Ask for the largest answers, and read none."""
    clients = StuckClients(run)
    await Crowd(run, Random(1)).run(*[clients.read_nothing] * run.job.size.connections)


class StuckClients:
    """What one client of each kind does, from its connection to its end."""

    def __init__(self, run: FloodRun) -> None:
        target = run.job.target
        self._link = BookieLink(target)
        self._counts = run.counts
        self._polls = run.job.size.each
        self._ledger = LedgerId(target.ledger_id)
        self._attach = AttachLedger(self._ledger, bytes.fromhex(target.ledger_key))
        self._rng = Random(1)

    async def be_silent(self, arrive: Arrive) -> None:
        """Connect, and say nothing."""
        await _until_closed(await self._link.connect(), arrive)

    async def drip(self, arrive: Arrive) -> None:
        """Send a hello, or a frame after it, byte by byte."""
        if self._rng.random() < 0.5:
            streams = await self._link.connect()
            data = frame_of(1, self._link.hello)
        else:
            streams = await self._link.greeted()
            data = frame_header(FrameKind.ADD, 1, FIRST_FRAME_BYTES_MAX) + bytes(1_000)
        _, writer = streams
        arrive()
        try:
            for byte in data:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(DRIP_PERIOD_S)
        except BaseException:
            writer.transport.abort()
            raise
        await _until_closed(streams, arrive)

    async def announce(self, arrive: Arrive) -> None:
        """Announce more than is sent."""
        is_greeted = self._rng.random() < 0.9
        streams = await (self._link.greeted() if is_greeted else self._link.connect())
        streams[1].write(frame_header(FrameKind.ADD, 1, FRAME_BYTES_MAX) + bytes(100))
        await _until_closed(streams, arrive)

    async def poll(self, arrive: Arrive) -> None:
        """Wait for entries, most of which are there already, and read none."""
        known = self._rng.choices(range(-1, ENTRIES), k=self._polls)
        wait_ms = self._rng.randrange(POLL_WAIT_MS_MAX)
        polls = [WaitLac(self._ledger, EntryId(last), wait_ms, 1) for last in known]
        await self._ask_without_reading(polls, arrive)

    async def read_nothing(self, arrive: Arrive) -> None:
        """Ask for the largest answer, and do not read it."""
        last = EntryId(ENTRIES_OF_A_READ)
        read = ReadEntries(self._ledger, EntryId(0), last, 2**32 - 1, fence=False)
        await self._ask_without_reading([read], arrive)

    async def _ask_without_reading(self, requests: Sequence[Request], arrive: Arrive) -> None:
        """Send all requests, then a small one at times; read no answer until disconnected."""
        _, writer = await self._link.greeted()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        small = ReadLac(self._ledger, fence=False)
        try:
            for number, request in enumerate([self._attach, *requests]):
                writer.write(frame_of(number, request))
                await writer.drain()
            self._counts.requests += len(requests)
            arrive()
            while not writer.transport.is_closing():
                # Without reading, the end is noticed only at the next write.
                await asyncio.sleep(DRIP_PERIOD_S)
                writer.write(frame_of(1, small))
        finally:
            writer.transport.abort()


async def _until_closed(streams: Streams, arrive: Arrive) -> None:
    reader, writer = streams
    arrive()
    try:
        while await reader.read(1_024):
            continue
    finally:
        writer.transport.abort()
