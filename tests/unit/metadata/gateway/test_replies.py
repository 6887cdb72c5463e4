"""Replies that a client of a gateway cannot read: each request ends, and the session goes on."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from metadata.errors import OutcomeUnknownError
from metadata.gateway.codec import Code, decode_request, packed_welcome, reply_frame
from metadata.gateway.errors import GatewayFormatError
from metadata.gateway.frames import REQUEST_BYTES_MAX, FrameAssembler
from metadata.gateway.messages import CreateNode, Get, Hello, Multi, Ping, Request, Welcome
from metadata.gateway.opening import open_store
from metadata.ids import Version
from metadata.msgpack_fields import Packed
from metadata.store.interface import Check, Delete, MetadataStore
from tests.until import until, within

Answer = Callable[[Request], tuple[Code, Packed]]
SESSION_S = 0.4
UNKNOWN_ERROR: tuple[Code, Packed] = (Code.FAILED, [99, "of a newer gateway"])
OK: tuple[Code, Packed] = (Code.OK, None)


@asynccontextmanager
async def store_with(answer: Answer) -> AsyncIterator[MetadataStore]:
    """Open a store over a gateway that welcomes each client and answers requests as told."""
    welcome = Welcome(1, 5, bytes(16), int(SESSION_S * 1000), 100)
    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        assembler = FrameAssembler(REQUEST_BYTES_MAX)
        while data := await reader.read(65_536):
            for number, request in map(decode_request, assembler.feed(data)):
                greets = isinstance(request, Hello)
                code, result = (Code.OK, packed_welcome(welcome)) if greets else answer(request)
                writer.write(reply_frame(code, number, result))
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    store = await open_store(
        f"gateway://{host}:{port}",
        rng=random.Random(1),
        operation_timeout_s=600.0,
        session_timeout_s=SESSION_S,
    )
    yield store
    await store.aclose()
    server.close()
    for writer in writers:
        writer.transport.abort()


async def test_a_ping_that_fails_with_an_unknown_error_is_not_the_last_one() -> None:
    pings = 0

    def answer(request: Request) -> tuple[Code, Packed]:
        nonlocal pings
        pings += isinstance(request, Ping)
        return UNKNOWN_ERROR if pings == 1 else OK

    async with store_with(answer):
        await until(lambda: pings > 4)


@pytest.mark.parametrize(
    "reply", [UNKNOWN_ERROR, OK, (Code.OK, []), (Code.OK, [1, 2, 3]), (Code.OK, ["text", "text"])]
)
async def test_a_write_whose_reply_cannot_be_read_may_have_been_done(
    reply: tuple[Code, Packed],
) -> None:
    def answer(request: Request) -> tuple[Code, Packed]:
        return reply if isinstance(request, CreateNode | Multi) else OK

    async with store_with(answer) as store:
        with pytest.raises(OutcomeUnknownError):
            await within(store.create("/a", b""))
        with pytest.raises(OutcomeUnknownError):
            await within(store.multi([Check("/a", Version(0)), Delete("/b", Version(0))]))
        with pytest.raises(OutcomeUnknownError):
            await within(store.delete("/a", Version(0)))


@pytest.mark.parametrize("result", [None, [], [b"", "0", True]])
async def test_a_node_that_cannot_be_read_is_an_error_of_the_metadata(result: Packed) -> None:
    def answer(request: Request) -> tuple[Code, Packed]:
        return (Code.OK, result) if isinstance(request, Get) else OK

    async with store_with(answer) as store:
        with pytest.raises(GatewayFormatError):
            await within(store.get("/a"))
