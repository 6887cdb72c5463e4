"""Connections of an HTTP port without requests: their number, also of one address, and time."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine

import pytest
import uvloop
from aiohttp import ClientSession, web

from quire.identity.tls import RefusedCertificates
from quire.server import http_listening
from quire.server.http_listening import HttpLimits, HttpListener, http_runner
from quire.server.server_log import ServerLog
from tests.until import until, within

Loop = Callable[[], asyncio.AbstractEventLoop]
ON_EACH_LOOP = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
"""Servers run on uvloop, whose transports are no subclasses of those of asyncio."""
HOSTS = ("127.0.0.1", "127.0.0.2")


LARGE = bytes(16 * 2**20)


async def answer(request: web.Request) -> web.Response:
    return web.Response(body=LARGE) if "large" in request.query else web.Response(text="here")


@contextlib.asynccontextmanager
async def serving(limits: HttpLimits) -> AsyncIterator[tuple[HttpListener, int]]:
    application = web.Application()
    application.add_routes([web.get("/", answer)])
    log = ServerLog(asyncio.get_running_loop().time)
    runner = http_runner(application, log)
    await runner.setup()
    listener = HttpListener(runner, None, log, limits, RefusedCertificates())
    try:
        _, port = await listener.open("0.0.0.0", 0)
        yield listener, port
    finally:
        listener.close()
        await runner.cleanup()


async def ends(port: int, own: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection(HOSTS[0], port, local_addr=(own, 0))


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(OSError):
        await writer.wait_closed()


async def end_of(reader: asyncio.StreamReader) -> None:
    with contextlib.suppress(ConnectionError):
        assert await reader.read(1) == b""


@ON_EACH_LOOP
def test_silent_connections_of_one_address_keep_no_other_out(loop: Loop) -> None:
    async def scenario() -> None:
        async with serving(HttpLimits(connections_max=4, of_address_max=2)) as (_, port):
            silent = [await ends(port, HOSTS[1]) for _ in range(5)]
            closing = [asyncio.ensure_future(end_of(reader)) for reader, _ in silent]
            await until(lambda: sum(task.done() for task in closing) == 3)
            async with ClientSession() as session:
                found = await session.get(f"http://{HOSTS[0]}:{port}/")
                assert await found.text() == "here"
            assert sum(task.done() for task in closing) == 3
            for _, writer in silent:
                await close(writer)
            await asyncio.gather(*closing)

    run(scenario, loop)


@ON_EACH_LOOP
def test_a_closed_connection_makes_room(loop: Loop) -> None:
    async def scenario() -> None:
        async with serving(HttpLimits(connections_max=1, of_address_max=1)) as (listener, port):
            for _ in range(3):
                reader, writer = await ends(port, HOSTS[0])
                writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
                assert b"200" in await reader.readline()
                assert b"here" in await reader.read()
                await close(writer)
                await until(lambda: len(listener._shares) == 0)

    run(scenario, loop)


@ON_EACH_LOOP
@pytest.mark.parametrize("sent", [b"", b"G", b"GET / HTTP/1.1\r\nHost: a\r\n"])
def test_a_connection_whose_first_head_is_not_complete_is_closed(
    loop: Loop, sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(HttpLimits()) as (_, port):
            reader, writer = await ends(port, HOSTS[0])
            writer.write(sent)
            await within(end_of(reader))
            await close(writer)

    monkeypatch.setattr(http_listening, "HEAD_S", 0.05)
    run(scenario, loop)


@ON_EACH_LOOP
def test_a_connection_whose_next_head_is_not_complete_is_closed(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(HttpLimits()) as (_, port):
            reader, writer = await ends(port, HOSTS[0])
            for part in (b"GET / HTTP/1.1\r\nHost: a\r\n\r", b"\n"):
                writer.write(part)
                await asyncio.sleep(0)
            assert b"here" in await reader.readuntil(b"here")
            writer.write(b"G")
            await within(end_of(reader))
            await close(writer)

    monkeypatch.setattr(http_listening, "KEEP_ALIVE_S", 0.05)
    run(scenario, loop)


@ON_EACH_LOOP
def test_a_connection_that_takes_nothing_of_an_answer_is_closed(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        async with serving(HttpLimits()) as (listener, port):
            _, writer = await asyncio.open_connection(HOSTS[0], port, limit=1)
            writer.write(b"GET /?large=1 HTTP/1.1\r\nHost: a\r\n\r\n")
            await until(lambda: len(listener._shares) == 1)
            await until(lambda: len(listener._shares) == 0)
            await close(writer)

    monkeypatch.setattr(http_listening, "WRITE_STALL_S", 0.05)
    run(scenario, loop)


def run(scenario: Callable[[], Coroutine[None, None, None]], loop: Loop) -> None:
    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(scenario())
