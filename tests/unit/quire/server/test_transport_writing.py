"""Buffers that may be empty leave nothing behind in a transport, on any release of Python."""

import asyncio
import socket
from unittest import mock

import pytest

from quire.server.connection import write_all
from quire.server.overriding import override
from tests.until import within

BUFFERS: list[bytes | memoryview] = [b"head", b"", memoryview(b"body"), b""]


class _Ending(asyncio.Protocol):
    def __init__(self) -> None:
        self.ended = asyncio.Event()

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()


def test_a_transport_gets_no_empty_buffer() -> None:
    transport = mock.Mock(asyncio.WriteTransport)
    write_all(transport, BUFFERS, 1000)
    transport.writelines.assert_called_once_with([b"head", b"body"])


@pytest.mark.real_time
async def test_a_transport_that_wrote_an_empty_buffer_last_can_be_closed() -> None:
    near, far = socket.socketpair()
    with near, far:
        near.setblocking(False)
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.create_connection(_Ending, sock=near)
        write_all(transport, BUFFERS, 1000)
        transport.close()
        await within(protocol.ended.wait())
        assert far.recv(100) == b"headbody"
