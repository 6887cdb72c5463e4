"""Sessions of the in-memory metadata service: lost connections, ends, news and running calls."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from metadata.errors import (
    NodeNotFoundError,
    OutcomeUnknownError,
    StoreClosedError,
    StoreUnavailableError,
)
from metadata.ids import Version
from metadata.store.interface import SESSION_TIMEOUT_S, SessionState
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults

CONNECTED, SUSPENDED, EXPIRED, CLOSED = SessionState
TURN_S = 0.01


@pytest.fixture
def held() -> ScriptedFaults:
    return ScriptedFaults()


@pytest.fixture
async def session(held: ScriptedFaults) -> AsyncIterator[MemoryMetadataStore]:
    store = MemoryMetadataStore(MemoryMetadataServer(held), operation_timeout_s=30.0)
    yield store
    await store.aclose()


def states_of(store: MemoryMetadataStore) -> list[SessionState]:
    states: list[SessionState] = []
    store.on_session(states.append)
    return states


async def other_of(store: MemoryMetadataStore) -> MemoryMetadataStore:
    return MemoryMetadataStore(store._server)


async def test_running_calls_of_a_lost_connection_fail_by_their_kind(
    session: MemoryMetadataStore, held: ScriptedFaults
) -> None:
    await session.create("/n", b"")
    held.gate.clear()
    loop = asyncio.get_running_loop()
    write = loop.create_task(session.compare_and_set("/n", b"1", Version(0)))
    read = loop.create_task(session.get("/n"))
    await asyncio.sleep(TURN_S)
    session.suspend()
    with pytest.raises(OutcomeUnknownError):
        await write
    with pytest.raises(StoreUnavailableError):
        await read
    held.gate.set()


async def test_a_call_that_was_not_sent_waits_for_the_next_connection_and_its_session(
    session: MemoryMetadataStore, held: ScriptedFaults
) -> None:
    await session.create("/n", b"1")
    first = session.session_id
    session.suspend()
    reading = asyncio.get_running_loop().create_task(session.get("/n"))
    await asyncio.sleep(TURN_S)
    session.suspend()
    session.expire()
    session.resume()
    assert (await reading).value == b"1"
    assert held.calls[-1].session_id == session.session_id != first


async def test_a_session_that_returns_in_time_goes_on(session: MemoryMetadataStore) -> None:
    await session.create("/mine", b"", ephemeral=True)
    states, first = states_of(session), session.session_id
    session.suspend()
    session.suspend()
    await asyncio.sleep(SESSION_TIMEOUT_S / 2)
    session.resume()
    session.resume()
    await asyncio.sleep(2 * SESSION_TIMEOUT_S)
    assert states == [SUSPENDED, CONNECTED]
    assert session.session_id == first
    assert await session.children("/") == ["mine"]


async def test_a_session_ends_after_its_timeout_without_a_connection(
    session: MemoryMetadataStore,
) -> None:
    await session.create("/mine", b"", ephemeral=True)
    states, first = states_of(session), session.session_id
    session.suspend()
    await asyncio.sleep(2 * SESSION_TIMEOUT_S)
    session.expire()
    assert states == [SUSPENDED, EXPIRED]
    session.resume()
    await asyncio.sleep(TURN_S)
    assert states == [SUSPENDED, EXPIRED, CONNECTED]
    assert session.session_id != first
    assert await session.children("/") == []


async def test_a_session_that_the_server_ends_is_followed_by_a_new_one(
    session: MemoryMetadataStore,
) -> None:
    await session.create("/mine", b"", ephemeral=True)
    states, first = states_of(session), session.session_id
    session.expire()
    await asyncio.sleep(2 * SESSION_TIMEOUT_S)
    assert states == [SUSPENDED, EXPIRED, CONNECTED]
    assert session.session_id != first
    assert await session.children("/") == []


async def test_a_closed_session_stays_closed(session: MemoryMetadataStore) -> None:
    states = states_of(session)
    session.suspend()
    await session.aclose()
    await session.aclose()
    session.resume()
    session.expire()
    session.suspend()
    await asyncio.sleep(2 * SESSION_TIMEOUT_S)
    assert states == [SUSPENDED, CLOSED]
    with pytest.raises(StoreClosedError):
        await session.get("/")


async def test_calls_that_run_at_the_close_fail_and_leave_no_task(
    session: MemoryMetadataStore, held: ScriptedFaults
) -> None:
    held.gate.clear()
    before = asyncio.all_tasks()
    reading = asyncio.get_running_loop().create_task(session.get("/"))
    await asyncio.sleep(TURN_S)
    await session.aclose()
    with pytest.raises(StoreClosedError):
        await reading
    assert not asyncio.all_tasks() - before
    assert not session._requests


async def test_a_caller_that_stops_waiting_leaves_no_report(
    session: MemoryMetadataStore, held: ScriptedFaults
) -> None:
    reports: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, what: reports.append(what))
    held.gate.clear()
    calls = [loop.create_task(session.create("/n", b"")), loop.create_task(session.get("/none"))]
    await asyncio.sleep(TURN_S)
    for call in calls:
        call.cancel()
    await asyncio.gather(*calls, return_exceptions=True)
    held.gate.set()
    await asyncio.sleep(TURN_S)
    assert not reports
    assert await session.children("/") == ["n"], "a write that was sent is applied"
    assert not session._requests


async def test_a_watch_calls_back_for_what_it_watches_only(session: MemoryMetadataStore) -> None:
    news: list[str] = []
    session.watch_value("/a", lambda: news.append("value of a"))
    session.watch_children("/a", lambda: news.append("names below a"))
    await session.create("/a", b"")
    await asyncio.sleep(TURN_S)
    assert news == ["value of a"]
    news.clear()
    await session.create("/a/one", b"")
    await session.create("/b", b"")
    await asyncio.sleep(TURN_S)
    assert news == ["names below a"]
    news.clear()
    await session.compare_and_set("/a/one", b"1", Version(0))
    await asyncio.sleep(TURN_S)
    assert news == []
    await session.compare_and_set("/a", b"1", Version(0))
    await session.delete("/a/one", Version(1))
    await asyncio.sleep(TURN_S)
    assert news == ["value of a", "names below a"]


async def test_a_watch_that_is_cancelled_while_its_news_are_on_the_way_stays_silent(
    session: MemoryMetadataStore, held: ScriptedFaults
) -> None:
    held.news_s = 5.0
    news: list[str] = []
    cancel = session.watch_value("/a", lambda: news.append("a"))
    await session.create("/a", b"")
    cancel()
    await asyncio.sleep(2 * held.news_s)
    assert news == []


async def test_watches_call_back_after_a_lost_connection_and_not_during_it(
    session: MemoryMetadataStore,
) -> None:
    news: list[str] = []
    session.watch_value("/a", lambda: news.append("a"))
    other = await other_of(session)
    session.suspend()
    await other.create("/a", b"")
    await asyncio.sleep(TURN_S)
    assert news == []
    session.resume()
    await asyncio.sleep(TURN_S)
    assert news == ["a"]
    session.resume()
    await asyncio.sleep(TURN_S)
    assert news == ["a"], "it is connected already"
    await session.aclose()
    await other.delete("/a", Version(0))
    await asyncio.sleep(TURN_S)
    assert news == ["a"]
    await other.aclose()


async def test_a_session_reads_its_own_writes_and_what_it_was_notified_of(
    session: MemoryMetadataStore, held: ScriptedFaults
) -> None:
    held.missed = 5
    other = await other_of(session)
    news: list[str] = []
    session.watch_value("/theirs", lambda: news.append("theirs"))
    await other.create("/unseen", b"")
    with pytest.raises(NodeNotFoundError):
        await session.get("/unseen")
    await other.create("/theirs", b"")
    await asyncio.sleep(TURN_S)
    assert news == ["theirs"]
    assert (await session.get("/theirs")).version == 0
    await other.create("/later", b"")
    await session.create("/mine", b"")
    assert (await session.get("/mine")).version == 0
    assert (await session.get("/later")).version == 0, "it is older than a write of this session"
    assert len(await session.children("/")) == 4
    await other.aclose()


async def test_an_older_notice_hides_nothing_that_was_seen(
    session: MemoryMetadataStore, held: ScriptedFaults
) -> None:
    held.missed = 5
    held.news_s = 5.0
    other = await other_of(session)
    session.watch_value("/first", lambda: None)
    await other.create("/first", b"")
    await other.create("/second", b"")
    assert (await session.get("/second", fresh=True)).version == 0
    await asyncio.sleep(2 * held.news_s)
    assert (await session.get("/second")).version == 0
    await other.aclose()


@pytest.mark.parametrize("path", ["", "n", "/n/", "//n"])
async def test_a_path_of_another_form_is_a_bug_of_the_caller(
    session: MemoryMetadataStore, path: str
) -> None:
    for call in (session.get, session.children):
        with pytest.raises(AssertionError):
            await call(path)
    with pytest.raises(AssertionError):
        await session.create(path, b"")
    with pytest.raises(AssertionError):
        session.watch_value(path, lambda: None)


async def test_the_parents_that_are_missing_are_created_alone(
    session: MemoryMetadataStore, held: ScriptedFaults
) -> None:
    await session.create("/a/b", b"")
    held.writes.clear()
    await session.create("/a/c/d", b"")
    assert held.writes == ["create", "create"]
    held.writes.clear()
    await session.create("/top", b"")
    assert held.writes == ["create"]


async def test_two_sessions_create_the_same_parents(session: MemoryMetadataStore) -> None:
    other = await other_of(session)
    paths = ["/p/q/r/one", "/p/q/r/two"]
    await asyncio.gather(session.create(paths[0], b""), other.create(paths[1], b""))
    assert await session.children("/p/q/r", fresh=True) == ["one", "two"]
    await other.aclose()
