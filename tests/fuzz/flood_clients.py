"""Bad clients that keep a bookie busy: silent, slow, with large announcements, or without reads.

Leaves the bookie, the good client and the result to `tests.fuzz.flood`.

Invariant: a disconnected bad client connects again, so that the requested number is always there.
"""

import asyncio
import contextlib
import random
import socket
from collections.abc import Awaitable, Callable, Sequence
from enum import StrEnum
from typing import Final

from bookie.server.server_limits import ServerLimits
from bookie.wire.batch import build_batch
from bookie.wire.codec import decode_acks, encode_message
from bookie.wire.frames import (
    BODY_BYTES_AT_FIRST,
    FIRST_FRAME_BYTES_MAX,
    FRAME_BYTES_MAX,
    FRAME_HEADER_BYTES,
    RECEIVE_BUFFER_BYTES,
    FrameKind,
    frame_header,
)
from bookie.wire.messages import (
    AttachLedger,
    Hello,
    ReadEntries,
    Request,
    Status,
    WaitLac,
    WriteLac,
)
from metadata.ids import EntryId, LedgerId

LEDGER: Final = LedgerId(2**55 + 1)
KEY: Final = bytes(range(32))
LIMITS: Final = ServerLimits()
ENTRIES: Final = 48
"""More than a bookie keeps in memory: each client causes disk reads of the first ones."""
ENTRY_BYTES: Final = 1024 * 1024
DRIP_PERIOD_S: Final = 1.0
COME_AGAIN_S: Final = 0.2
READS_PER_CLIENT: Final = 200
POLLS_PER_CLIENT: Final = 200
POLL_WAIT_MS_MAX: Final = 5_000
POLL_BYTES: Final = 4 * 1024
"""A timer, a watch and the objects that they refer to."""
SMALL_SOCKET_BYTES: Final = 4 * 1024
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Kind(StrEnum):
    """Behaviour of a bad client."""

    SILENT = "silent"
    """Never says hello."""
    DRIP = "drip"
    """Sends one byte per second: of a hello, or of a frame after it."""
    ANNOUNCE = "announce"
    """Announces the largest frame, and sends a small part of it."""
    NO_READ = "no-read"
    """Sends more and more requests, and reads no answer."""
    POLL = "poll"
    """Opens many long polls, moves the LAC, which wakes them, and reads no answer."""


UNREAD_BYTES_MAX: Final = (
    2 * RECEIVE_BUFFER_BYTES
    + LIMITS.write_buffer_bytes_max
    + LIMITS.requests_running_bytes_max
    + LIMITS.read_bytes_max
)
CONNECTION_BYTES_MAX: Final = {
    Kind.SILENT: 2 * RECEIVE_BUFFER_BYTES,
    Kind.DRIP: 2 * RECEIVE_BUFFER_BYTES + FIRST_FRAME_BYTES_MAX,
    Kind.ANNOUNCE: 2 * RECEIVE_BUFFER_BYTES + 2 * BODY_BYTES_AT_FIRST,
    Kind.NO_READ: UNREAD_BYTES_MAX,
    Kind.POLL: UNREAD_BYTES_MAX + POLLS_PER_CLIENT * POLL_BYTES,
}
"""Maximum memory that the bookie's limits allow one connection of a kind."""


class BadClients:
    """Many connections of one kind, until they are closed."""

    def __init__(self, address: tuple[str, int], bookie_id: str, rng: random.Random) -> None:
        self.disconnected = 0
        """Number of connections that were closed or refused by the bookie."""
        self.most_held_bytes = 0
        """Maximum memory that the connections of any one phase may have held."""
        self._address = address
        self._bookie_id = bookie_id
        self._rng = rng
        self._tasks: list[asyncio.Task[None]] = []

    async def store_entries(self) -> None:
        """Store the entries that clients of kind `no-read` request."""
        reader, writer = await self._greeted()
        for number in range(ENTRIES):
            payload = self._rng.randbytes(ENTRY_BYTES)
            batch = build_batch(
                LEDGER, EntryId(number), EntryId(-1), number * ENTRY_BYTES, [payload], 1
            )
            writer.write(frame_header(FrameKind.ADD, number, len(batch)))
            writer.write(batch)
            await writer.drain()
            body = (await reader.readexactly(FRAME_HEADER_BYTES + 8))[FRAME_HEADER_BYTES:]
            assert decode_acks(memoryview(body)) == [(number, Status.OK)]
        writer.close()

    def come(self, kind: Kind, count: int) -> None:
        """Open some connections."""
        act = {
            Kind.SILENT: self._be_silent,
            Kind.DRIP: self._drip,
            Kind.ANNOUNCE: self._announce,
            Kind.NO_READ: self._read_nothing,
            Kind.POLL: self._poll,
        }[kind]
        self._tasks += [asyncio.create_task(self._go_on(act)) for _ in range(count)]

    async def go(self) -> None:
        """Close all connections."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def _go_on(self, act: Callable[[], Awaitable[None]]) -> None:
        await asyncio.sleep(self._rng.random())
        while True:
            with contextlib.suppress(OSError, EOFError):
                await act()
            self.disconnected += 1
            await asyncio.sleep(COME_AGAIN_S * (1 + self._rng.random()))

    async def _be_silent(self) -> None:
        reader, writer = await self._connect()
        await _until_closed(reader, writer)

    async def _drip(self) -> None:
        if self._rng.random() < 0.5:
            reader, writer = await self._connect()
            data = _frame(1, self._hello())
        else:
            reader, writer = await self._greeted()
            data = frame_header(FrameKind.ADD, 1, FIRST_FRAME_BYTES_MAX) + bytes(1_000)
        try:
            for byte in data:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(DRIP_PERIOD_S)
            await _until_closed(reader, writer)
        finally:
            writer.transport.abort()

    async def _announce(self) -> None:
        is_greeted = self._rng.random() < 0.9
        reader, writer = await (self._greeted() if is_greeted else self._connect())
        writer.write(frame_header(FrameKind.ADD, 1, FRAME_BYTES_MAX) + bytes(100))
        await _until_closed(reader, writer)

    async def _read_nothing(self) -> None:
        request = ReadEntries(LEDGER, EntryId(0), EntryId(7), 2**32 - 1, fence=False)
        await self._ask_without_reading([request] * READS_PER_CLIENT, lambda: request)

    async def _poll(self) -> None:
        polls = [
            WaitLac(LEDGER, EntryId(known), self._rng.randrange(POLL_WAIT_MS_MAX), 2**32 - 1)
            for known in self._rng.choices(range(-1, ENTRIES), k=POLLS_PER_CLIENT)
        ]
        # The first that moves the LAC wakes the polls of all the others at once.
        last = range(ENTRIES)
        await self._ask_without_reading(
            polls, lambda: WriteLac(LEDGER, EntryId(self._rng.choice(last)))
        )

    async def _ask_without_reading(
        self, requests: Sequence[Request], next_one: Callable[[], Request]
    ) -> None:
        """Send all requests, then one more at times; read no answer until disconnected."""
        _, writer = await self._greeted()
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        try:
            for number, request in enumerate(requests):
                writer.write(_frame(number, request))
                await writer.drain()
            while not writer.transport.is_closing():
                # Without reading, the end is noticed only at the next write.
                await asyncio.sleep(DRIP_PERIOD_S)
                writer.write(_frame(1, next_one()))
        finally:
            writer.transport.abort()

    async def _connect(self) -> Streams:
        sock = socket.socket()
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_SOCKET_BYTES)
        try:
            await asyncio.get_running_loop().sock_connect(sock, self._address)
            return await asyncio.open_connection(sock=sock)
        except BaseException:
            sock.close()
            raise

    async def _greeted(self) -> Streams:
        reader, writer = await self._connect()
        try:
            writer.write(_frame(1, self._hello()) + _frame(2, AttachLedger(LEDGER, KEY)))
            header = await reader.readexactly(FRAME_HEADER_BYTES)
            await reader.readexactly(int.from_bytes(header[8:], "little"))
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer

    def _hello(self) -> Hello:
        return Hello(self._bookie_id, 1, 1, 0, b"", "bad client")


def _frame(request_id: int, request: Request) -> bytes:
    body = encode_message(request)
    return frame_header(FrameKind.REQUEST, request_id, len(body)) + body


async def _until_closed(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.read(1_024):
            continue
    finally:
        writer.transport.abort()
