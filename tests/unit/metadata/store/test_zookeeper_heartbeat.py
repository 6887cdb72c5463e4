"""Contact with a server: beats at intervals, and a silent server is left in time (virtual time)."""

import asyncio
from typing import cast

import pytest

from metadata.store.interface import SessionState
from metadata.store.session_clock import SILENT_AFTER, SessionClock
from metadata.store.zookeeper.calls import NoAuth
from metadata.store.zookeeper.heartbeat import (
    BEATS_PER_SESSION,
    GRACES_PER_SESSION,
    keep_alive,
)
from metadata.store.zookeeper.session import LinkDown, LinkUp, ZooKeeperSession
from tests.virtual_time import VirtualTimeLoop

SESSION_S = 12.0


class Server:
    """A connection whose server answers at once, or is silent."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.began_s = self.loop.time()
        self.is_silent = self.is_refusing = False
        self.beats: list[float] = []
        self.cuts: list[float] = []
        self.clock = SessionClock(SESSION_S, self.began_s)
        self.states: list[SessionState] = []
        self.clock.on_session(self.states.append)
        self.is_up = asyncio.Event()
        self.connect()

    @property
    def now_s(self) -> float:
        return self.loop.time() - self.began_s

    def connect(self) -> None:
        self.is_up.set()
        self.clock.note_link(LinkUp(1, SESSION_S, self.loop.time()))

    def submit(self, _method: str, _path: str) -> "asyncio.Future[None]":
        self.beats.append(self.now_s)
        answer: asyncio.Future[None] = self.loop.create_future()
        if self.is_refusing:
            answer.set_exception(NoAuth())
        elif not self.is_silent:
            answer.set_result(None)
        return answer

    def cut(self) -> None:
        self.cuts.append(self.now_s)
        self.is_up.clear()
        self.clock.note_link(LinkDown())


@pytest.fixture
async def server() -> Server:
    return Server()


async def run(server: Server, seconds: float) -> None:
    session = cast("ZooKeeperSession", server)
    beating = asyncio.create_task(keep_alive(session, server.clock, server.is_up))
    await asyncio.sleep(seconds)
    beating.cancel()


async def test_a_server_that_answers_is_kept(server: Server) -> None:
    await run(server, 10 * SESSION_S - 1)
    assert (server.cuts, server.states) == ([], [SessionState.CONNECTED])
    assert len(server.beats) == 10 * BEATS_PER_SESSION


async def test_a_refusal_is_an_answer(server: Server) -> None:
    """A session without rights stays, so that its calls are refused, and not unavailable."""
    server.is_refusing = True
    await run(server, 10 * SESSION_S - 1)
    assert (server.cuts, server.states) == ([], [SessionState.CONNECTED])


async def test_a_silent_server_is_left_while_another_can_still_be_found(server: Server) -> None:
    server.is_silent = True
    await run(server, 0.9 * SESSION_S)
    silent_s = SESSION_S * SILENT_AFTER
    assert server.cuts == [pytest.approx(silent_s + SESSION_S / GRACES_PER_SESSION)]
    assert SessionState.EXPIRED not in server.states


async def test_answers_to_other_requests_show_that_a_server_lives(server: Server) -> None:
    server.is_silent = True

    async def answer() -> None:
        while True:
            await asyncio.sleep(1)
            server.clock.contacted(server.loop.time(), server.loop.time())

    answering = asyncio.create_task(answer())
    await run(server, 5 * SESSION_S)
    answering.cancel()
    assert server.cuts == []


async def test_an_answer_that_a_paused_process_has_not_read_yet_counts(server: Server) -> None:
    loop = server.loop
    assert isinstance(loop, VirtualTimeLoop)

    async def pause() -> None:
        await asyncio.sleep(1)
        loop.advance(0.8 * SESSION_S)
        loop.call_later(0.01, server.clock.contacted, loop.time(), loop.time())

    pausing = asyncio.create_task(pause())
    server.is_silent = True
    await run(server, 1.2 * SESSION_S)
    await pausing
    assert server.cuts == []


async def test_the_session_expires_without_a_connection(server: Server) -> None:
    server.is_silent = True
    await run(server, 3 * SESSION_S)
    assert server.states == [
        SessionState.CONNECTED,
        SessionState.SUSPENDED,
        SessionState.EXPIRED,
    ]
    assert len(server.cuts) == 1
    server.connect()
    server.is_silent = False
    await run(server, SESSION_S)
    assert server.states[-1] is SessionState.CONNECTED
