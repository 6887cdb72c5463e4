"""Connections of bad clients to a bookie.

Leaves what is sent on them to `benchmarks.floods.stuck_clients` and
`benchmarks.floods.attach_flood`.
"""

import asyncio
import socket
from typing import Final

from benchmarks.floods.flood_job import BAD_HOST, FloodTarget
from benchmarks.processes import host_and_port
from bookie.wire.codec import encode_message
from bookie.wire.frames import FRAME_HEADER_BYTES, FrameKind, frame_header
from bookie.wire.messages import Hello, Request
from quire.identity.client_file import read_client_file

SMALL_SOCKET_BYTES: Final = 4 * 1024
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class BookieLink:
    """Connections to a bookie over TLS, with the certificate of the bad clients."""

    def __init__(self, target: FloodTarget) -> None:
        self._address = host_and_port(target.bookie)
        self._context = read_client_file(target.client_file).context
        self.hello = Hello(target.bookie_id, 1, 1, 0, b"", "bad client")

    async def connect(self) -> Streams:
        """Connect, with a small buffer for what the bookie sends."""
        sock = socket.socket()
        sock.setblocking(False)  # noqa: FBT003 - the socket's own interface
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL_SOCKET_BYTES)
        host, _ = self._address
        try:
            sock.bind((BAD_HOST, 0))
            await asyncio.get_running_loop().sock_connect(sock, self._address)
            return await asyncio.open_connection(sock=sock, ssl=self._context, server_hostname=host)
        except BaseException:
            sock.close()
            raise

    async def greeted(self) -> Streams:
        """Connect, say hello, and read the answer."""
        reader, writer = await self.connect()
        try:
            writer.write(frame_of(1, self.hello))
            header = await reader.readexactly(FRAME_HEADER_BYTES)
            await reader.readexactly(int.from_bytes(header[8:], "little"))
        except BaseException:
            writer.transport.abort()
            raise
        return reader, writer


def frame_of(request_id: int, request: Request) -> bytes:
    """Return the frame of a request."""
    body = encode_message(request)
    return frame_header(FrameKind.REQUEST, request_id, len(body)) + body
