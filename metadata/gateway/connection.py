"""Client's end of one connection to a gateway.

Leaves which gateway to connect to, and the session, to `session.py`.

Invariants: a reply resolves the request with its number, and each request ends when the connection
does; at most REQUESTS_MAX requests wait for replies.

Source: docs/formats.md, "Connections to a gateway".
"""

import asyncio
from collections.abc import Callable
from ssl import SSLContext
from typing import Final, cast

from metadata.errors import MetadataError
from metadata.gateway.codec import NUMBER_MAX, Code, Reply, decode_reply, request_frame
from metadata.gateway.errors import GatewayFormatError
from metadata.gateway.failures import failure_of
from metadata.gateway.frames import REPLY_BYTES_MAX, FrameAssembler
from metadata.gateway.messages import Request
from metadata.msgpack_fields import FieldError, Packed, array_of

REQUESTS_MAX: Final = 10_000
"""Maximum number of requests of one client without a reply."""


class GatewayConnection(asyncio.Protocol):
    """One connection, from `connect` to its loss."""

    def __init__(
        self, on_event: Callable[[int], None], on_lost: Callable[["GatewayConnection"], None]
    ) -> None:
        """`on_event` takes the number of a watch."""
        self._on_event = on_event
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._assembler = FrameAssembler(REPLY_BYTES_MAX)
        self._waiting: dict[int, asyncio.Future[Packed]] = {}
        self._number = 0
        self.failure = ""
        """Why the connection ended; empty if it did not, or if nothing is known."""

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._transport is not None and not self._transport.is_closing()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:  # type: ignore[explicit-override]
        """See `asyncio.Protocol`."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:  # type: ignore[explicit-override]
        """See `asyncio.Protocol`."""
        try:
            for body in self._assembler.feed(data):
                self._take(decode_reply(body))
        except GatewayFormatError as error:
            self.failure = str(error)
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:  # type: ignore[explicit-override]
        """See `asyncio.Protocol`."""
        self._transport = None
        self.failure = self.failure or str(error or "")
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(ConnectionResetError("the connection is lost"))
        self._on_lost(self)

    def call(self, request: Request) -> "asyncio.Future[Packed]":
        """Send a request; return a future of its result. It raises the MetadataError of the reply,
        or ConnectionError if the connection ends first.
        """
        future: asyncio.Future[Packed] = asyncio.get_running_loop().create_future()
        if not self.is_open:
            future.set_exception(ConnectionResetError("the connection is lost"))
            return future
        if len(self._waiting) >= REQUESTS_MAX:
            raise OverflowError(f"{REQUESTS_MAX} requests wait for replies")
        while self._number in self._waiting:
            self._number = (self._number + 1) % NUMBER_MAX
        number, self._number = self._number, (self._number + 1) % NUMBER_MAX
        self._waiting[number] = future
        self._send(number, request)
        return future

    def send(self, request: Request) -> None:
        """Send a request that has no reply."""
        if self.is_open:
            self._send(0, request)

    def abort(self) -> None:
        """End the connection at once."""
        if self._transport is not None:
            self._transport.abort()

    def _send(self, number: int, request: Request) -> None:
        assert self._transport is not None, "it is open"
        self._transport.write(request_frame(number, request))

    def _take(self, reply: Reply) -> None:
        if reply.code is Code.EVENT:
            self._on_event(reply.number)
            return
        # An error that cannot be read ends the connection, and with it the request.
        failure = None if reply.code is Code.OK else _failure(reply.result)
        future = self._waiting.pop(reply.number, None)
        if future is None or future.done():
            return  # its caller has gone
        if failure is None:
            future.set_result(reply.result)
        else:
            future.set_exception(failure)


def _failure(result: Packed) -> MetadataError:
    try:
        return failure_of(array_of(result))
    except FieldError as error:
        raise GatewayFormatError(f"it is not an error: {error}") from error


async def connect(
    host: str,
    port: int,
    ssl: SSLContext | None,
    on_event: Callable[[int], None],
    on_lost: Callable[[GatewayConnection], None],
) -> GatewayConnection:
    """Connect to one gateway; with `ssl`, its certificate and name are verified. Raises OSError."""
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: GatewayConnection(on_event, on_lost), host, port, ssl=ssl
    )
    return connection
