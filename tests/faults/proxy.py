"""Proxy between a client and ZooKeeper that delays, holds back or loses requests and answers.

Leaves the times of these faults to `zookeeper_proxy`.

Format: both directions are frames of a length u32 (big-endian) and this many bytes. A request
starts with its number and its opcode, i32 each. The first frame of a connection is its handshake.
Invariant: forwarded frames stay in order and unchanged.
"""

import asyncio
import contextlib
import struct
from asyncio import StreamReader, StreamWriter
from collections import Counter
from enum import Enum
from random import Random
from typing import Final, Self

HOST: Final = "127.0.0.1"
LENGTH: Final = struct.Struct(">I")
REQUEST: Final = struct.Struct(">ii")
WRITES: Final = {1: "create", 2: "delete", 5: "set", 14: "multi", 15: "create"}
"""Opcodes of requests that change data."""
FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
UNTIL_CUT_S: Final = 0.15
"""Maximum time that a connection with a lost answer stays silent before it is cut, in seconds."""


class Loss(Enum):
    """Loss at the next write."""

    NOTHING = "nothing"
    ANSWER = "answer"
    REQUEST = "request"


class Proxy:
    """One listening port in front of one server."""

    def __init__(self, port: int, rng: Random) -> None:
        self.counts: Counter[str] = Counter()
        self.loss = Loss.NOTHING
        """Becomes NOTHING once it has happened."""
        self.delay_s = 0.0
        """Maximum time that each frame is delayed, in seconds."""
        self._server_port = port
        self._rng = rng
        self._heard = asyncio.Event()
        self._heard.set()
        self._listener: asyncio.Server | None = None
        self._writers: list[StreamWriter] = []

    @property
    def port(self) -> int:
        """Port that it listens on."""
        assert self._listener is not None, "it was started"
        return int(self._listener.sockets[0].getsockname()[1])

    async def __aenter__(self) -> Self:
        self._listener = await asyncio.start_server(self._serve, HOST, 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listener is not None, "it was started"
        self._listener.close()
        self.cut()

    def silence(self) -> None:
        """Accept all frames and forward none, until `cut` or `speak`."""
        self._heard.clear()

    def speak(self) -> None:
        """Forward the frames that were held back."""
        self._heard.set()

    def cut(self) -> None:
        """End every connection; frames that were held back are lost."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()
        self._heard.set()

    async def _serve(self, reader: StreamReader, writer: StreamWriter) -> None:
        try:
            from_server, to_server = await asyncio.open_connection(HOST, self._server_port)
        except OSError:
            writer.transport.abort()
            return
        connection = _Connection(self, writer, to_server)
        self._writers += [writer, to_server]
        self.counts["connections"] += 1
        await asyncio.gather(
            connection.pump_requests(reader),
            connection.pump_answers(from_server),
            return_exceptions=True,
        )
        self._writers = [
            stream_writer
            for stream_writer in self._writers
            if stream_writer not in (writer, to_server)
        ]

    async def hold(self) -> None:
        """Wait for the delay of a frame."""
        if self.delay_s:
            await asyncio.sleep(self._rng.uniform(0.0, self.delay_s))
        await self._heard.wait()

    def take_loss(self, what: str) -> Loss:
        """Return the loss for this write."""
        loss, self.loss = self.loss, Loss.NOTHING
        if loss is not Loss.NOTHING:
            self.counts[f"{loss.value} of {what} lost"] += 1
        return loss

    def until_cut_s(self) -> float:
        """Return how long a connection with a loss stays silent."""
        return self._rng.uniform(0.0, UNTIL_CUT_S)


class _Connection:
    """Connection of one client, and the one to the server."""

    def __init__(self, proxy: Proxy, to_client: StreamWriter, to_server: StreamWriter) -> None:
        self._proxy = proxy
        self._to_client = to_client
        self._to_server = to_server
        self._is_deaf = False

    async def pump_requests(self, reader: StreamReader) -> None:
        """Forward the client's requests until either side ends."""
        is_handshake = True
        try:
            while True:
                frame = await _read_frame(reader)
                await self._proxy.hold()
                loss = Loss.NOTHING if is_handshake else self._loss_of(frame)
                is_handshake = False
                if loss is not Loss.REQUEST:
                    self._to_server.write(frame)
                    await self._to_server.drain()
                if loss is not Loss.NOTHING:
                    self._is_deaf = True
                    await asyncio.sleep(self._proxy.until_cut_s())
                    return
        except (OSError, EOFError):
            return
        finally:
            self._end()

    async def pump_answers(self, reader: StreamReader) -> None:
        """Forward the server's answers until either side ends."""
        try:
            while True:
                frame = await _read_frame(reader)
                await self._proxy.hold()
                if not self._is_deaf:
                    self._to_client.write(frame)
                    await self._to_client.drain()
        except (OSError, EOFError):
            return
        finally:
            self._end()

    def _loss_of(self, frame: bytes) -> Loss:
        body = frame[LENGTH.size :]
        if len(body) < REQUEST.size:
            return Loss.NOTHING
        _, opcode = REQUEST.unpack_from(body)
        what = WRITES.get(opcode)
        return Loss.NOTHING if what is None else self._proxy.take_loss(what)

    def _end(self) -> None:
        with contextlib.suppress(OSError):
            self._to_client.transport.abort()
            self._to_server.transport.abort()


async def _read_frame(reader: StreamReader) -> bytes:
    head = await reader.readexactly(LENGTH.size)
    (size,) = LENGTH.unpack(head)
    if size > FRAME_BYTES_MAX:
        raise EOFError(f"a frame of {size} bytes")
    return head + await reader.readexactly(size)
