"""Connection to a bookie without a socket, with recorded writes; a test sends the answers."""

import asyncio

from bookie.wire.codec import encode_message
from bookie.wire.frames import FrameKind, frame_header
from bookie.wire.messages import Hello, HelloReply, Status
from ledger_client.bookies.connection import BookieConnection
from metadata.ids import BookieId
from quire.server.overriding import override


class Recorder(asyncio.Transport):
    """Transport that accepts everything at once."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: list[int] = []

    @override
    def write(self, data: object) -> None:
        assert isinstance(data, bytes | bytearray | memoryview)
        self.writes.append(len(data))

    @override
    def get_write_buffer_size(self) -> int:
        return 0

    @override
    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        return

    @override
    def abort(self) -> None:
        return


def receive(connection: BookieConnection, kind: FrameKind, request_id: int, body: bytes) -> None:
    """Pass a frame of the bookie to the connection."""
    data = frame_header(kind, request_id, len(body)) + body
    connection.get_buffer(-1)[: len(data)] = data
    connection.buffer_updated(len(data))


def opened(recorder: Recorder, add_timeout_s: float = 5.0) -> BookieConnection:
    """Return a connection whose hello was accepted."""
    bookie_id = BookieId("b-1")
    connection = BookieConnection(
        bookie_id,
        Hello(bookie_id, 1, 1, 0, b"", "test"),
        add_timeout_s=add_timeout_s,
        on_lost=lambda *_: None,
        on_latency=lambda *_: None,
    )
    connection.connection_made(recorder)
    body = encode_message(HelloReply(Status.OK, bookie_id, 1, 0, 2**24, 2**23, "", ""))
    receive(connection, FrameKind.REPLY, 1, body)
    assert connection.is_open
    connection.is_welcome = True
    recorder.writes.clear()
    return connection
