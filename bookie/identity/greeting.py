"""Hello to an address, to find out which bookie answers there.

Leaves the consequences to `bookie.identity.original`. It sends only the hello of rule 2.3, because
the bookie does not import the client.

Source: protocol rules 2.3, 2.6.
"""

import asyncio
from typing import Final, cast

from bookie.wire.codec import decode_reply, encode_message
from bookie.wire.errors import FrameError, MessageError
from bookie.wire.frames import FrameAssembler, FrameKind, frame_header
from bookie.wire.messages import WIRE_VERSION, WIRE_VERSION_MIN, Hello, HelloReply
from metadata.ids import BookieId
from quire.server.overriding import override

GREETING_S_MAX: Final = 2.0
"""Maximum time for the connection and the answer together, in seconds."""
CLIENT_NAME: Final = "a starting bookie"


async def greet(host: str, port: int, bookie_id: BookieId) -> HelloReply | None:
    """Send a hello and return the answer; None if there is none within GREETING_S_MAX."""
    transport: asyncio.BaseTransport | None = None
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(GREETING_S_MAX):
            transport, greeting = await loop.create_connection(
                lambda: _Greeting(bookie_id), host, port
            )
            return await greeting.answered
    except (OSError, TimeoutError):
        return None
    finally:
        if transport is not None:
            cast("asyncio.Transport", transport).abort()


class _Greeting(asyncio.Protocol):
    """One connection, until its first answer or its end."""

    def __init__(self, bookie_id: BookieId) -> None:
        self.answered: asyncio.Future[HelloReply | None] = (
            asyncio.get_running_loop().create_future()
        )
        self._bookie_id = bookie_id
        self._assembler = FrameAssembler()

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        versions = (WIRE_VERSION_MIN, WIRE_VERSION)
        body = encode_message(Hello(self._bookie_id, *versions, 0, b"", CLIENT_NAME))
        frame = frame_header(FrameKind.REQUEST, 1, len(body)) + body
        cast("asyncio.Transport", transport).write(frame)

    @override
    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        rest = memoryview(data)
        try:
            while rest and not self.answered.done():
                buffer = self._assembler.get_buffer()
                count = min(len(buffer), len(rest))
                buffer[:count] = rest[:count]
                for frame in self._assembler.buffer_updated(count):
                    reply = decode_reply(frame.body)
                    self._settle(reply if isinstance(reply, HelloReply) else None)
                rest = rest[count:]
        except (FrameError, MessageError):
            self._settle(None)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._settle(None)

    def _settle(self, reply: HelloReply | None) -> None:
        if not self.answered.done():
            self.answered.set_result(reply)
