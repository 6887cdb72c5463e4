"""Behaviour while a real ZooKeeper server is absent, silent, paused, slow or restarted."""

import asyncio
import os
import random
import socket
from functools import partial

import pytest

from metadata.errors import (
    OutcomeUnknownError,
    StoreClosedError,
    StoreUnavailableError,
)
from metadata.ids import EntryId, LedgerId, Version
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import bookie_path
from metadata.registry.registry import BookieRegistrar, BookieRegistration
from metadata.store.embedded import EmbeddedZooKeeper
from metadata.store.interface import SessionState
from metadata.store.zookeeper.store import open_store
from tests.contracts.store_service import Signal, eventually
from tests.integration.metadata.service import HURRIED_S, ZooKeeperService, pause
from tests.support.metadata.samples import A, B, D, open_ledger, token
from tests.until import WAIT_S, within

pytestmark = pytest.mark.long

NOW_MS = 1_700_000_000_000
SESSION_S = 30.0
"""Of tests that need their session to last, also on a busy machine."""


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def test_an_absent_service_is_named_in_bounded_time(rng: random.Random) -> None:
    uri = f"zk://127.0.0.1:{unused_port()}/quire"
    with pytest.raises(StoreUnavailableError) as caught:
        await within(open_store(uri, rng=rng, operation_timeout_s=0.5))
    assert uri in str(caught.value)


async def test_an_unresolvable_name_is_reported(rng: random.Random) -> None:
    with pytest.raises(StoreUnavailableError, match=r"nowhere\.invalid"):
        await within(open_store("zk://nowhere.invalid:2181", rng=rng, operation_timeout_s=0.5))


async def test_a_silent_port_is_reported_in_bounded_time(rng: random.Random) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        uri = f"zk://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(StoreUnavailableError):
            await within(open_store(uri, rng=rng, operation_timeout_s=0.5))


async def test_a_program_that_is_no_zookeeper_is_reported(rng: random.Random) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 100)
        await reader.read(1000)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(StoreUnavailableError):
        await within(open_store(f"zk://127.0.0.1:{port}", rng=rng, operation_timeout_s=0.5))
    server.close()
    await server.wait_closed()


async def test_a_silent_first_server_does_not_use_up_the_session(
    own_server: EmbeddedZooKeeper,
) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        hosts = f"127.0.0.1:{silent.getsockname()[1]},{own_server.address}"
        service = ZooKeeperService(f"zk://{hosts}/quire", session_timeout_s=SESSION_S / 2)
        for _ in range(4):  # the order is random: each store may try the silent server first
            store = await service.connect()
            states: list[SessionState] = []
            store.on_session(states.append)
            session_id = store.session_id
            await store.create(f"/live/{session_id}", b"", ephemeral=True)
            await service.interrupt(store)
            await eventually(partial(states.__contains__, SessionState.CONNECTED))
            assert states == [SessionState.SUSPENDED, SessionState.CONNECTED]
            assert store.session_id == session_id
        await service.aclose()


async def test_a_pause_longer_than_the_session_expires_it_by_our_clock(
    own_server: EmbeddedZooKeeper, own_service: ZooKeeperService
) -> None:
    store = await own_service.connect()
    states: list[SessionState] = []
    store.on_session(states.append)
    await store.create("/live/one", b"", ephemeral=True)
    await pause(own_server)
    await eventually(lambda: SessionState.EXPIRED in states)  # while the server is silent
    with pytest.raises(StoreUnavailableError):
        await open_store(own_server.uri, rng=random.Random(1), operation_timeout_s=0.3)
    own_server.resume()
    await eventually(lambda: store.session_state is SessionState.CONNECTED)
    assert await store.children("/", fresh=True) == ["live"]
    assert SessionState.SUSPENDED in states[: states.index(SessionState.EXPIRED)]


async def test_registration_and_watches_return_after_a_pause(
    own_server: EmbeddedZooKeeper, own_service: ZooKeeperService, rng: random.Random
) -> None:
    store = await own_service.connect()
    registrar = BookieRegistrar(store, BookieRegistration(A, "host", 3181), rng)
    await registrar.start()
    signal = Signal()
    store.watch_value("/a", signal)
    states: list[SessionState] = []
    store.on_session(states.append)
    await pause(own_server)
    await eventually(lambda: SessionState.EXPIRED in states)
    own_server.resume()
    other = await own_service.connect()
    async with asyncio.timeout(WAIT_S):
        while await other.children("/bookies", fresh=True) != [A]:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    assert (await other.get(bookie_path(A), fresh=True)).ephemeral
    signal.clear()
    await other.create("/a", b"")
    await signal.wait()
    await registrar.aclose()


async def test_an_ambiguous_write_is_decided_by_its_token(
    own_server: EmbeddedZooKeeper, own_service: ZooKeeperService, rng: random.Random
) -> None:
    own_service.session_timeout_s = SESSION_S
    store = await own_service.connect()
    ledgers = LedgerStore(store, rng, lambda: NOW_MS)
    ledger = open_ledger()
    version = await ledgers.create(ledger)
    changed = ledger.with_ensemble_change(EntryId(5), (A, B, D), token(3))
    await pause(own_server)
    own_service.hurry(store)
    call = asyncio.create_task(ledgers.compare_and_set(changed, version))
    await asyncio.sleep(2.5 * HURRIED_S)  # timeouts pass, and the decision waits
    assert not call.done()
    own_server.resume()
    assert await within(call) == version + 1
    ledgers = LedgerStore(await own_service.connect(), rng, lambda: NOW_MS)
    assert await ledgers.get(LedgerId(7), fresh=True) == (changed, version + 1)


async def test_a_write_to_a_paused_server_is_of_unknown_outcome_and_may_apply(
    own_server: EmbeddedZooKeeper, own_service: ZooKeeperService
) -> None:
    own_service.session_timeout_s = SESSION_S
    store, other = await own_service.connect(), await own_service.connect()
    await store.create("/a", b"0")
    await pause(own_server)
    own_service.hurry(store)
    with pytest.raises(OutcomeUnknownError):
        await store.compare_and_set("/a", b"1", Version(0))
    own_server.resume()
    async with asyncio.timeout(WAIT_S):
        while (await other.get("/a", fresh=True)).value != b"1":  # noqa: ASYNC110
            await asyncio.sleep(0.05)


async def test_a_restart_keeps_data_port_and_session(own_server: EmbeddedZooKeeper) -> None:
    service = ZooKeeperService(own_server.uri + "/quire", session_timeout_s=SESSION_S)
    store = await service.connect()
    await store.create("/a", b"kept")
    await store.create("/live", b"", ephemeral=True)
    port, session_id = own_server.port, store.session_id
    own_server.kill()
    assert not own_server.is_running
    await own_server.start()
    assert own_server.port == port
    assert (await store.get("/a", fresh=True)).value == b"kept"
    assert (await store.get("/live", fresh=True)).ephemeral
    assert store.session_id == session_id
    await service.aclose()


async def test_no_request_is_sent_while_the_service_is_down(
    own_server: EmbeddedZooKeeper, own_service: ZooKeeperService
) -> None:
    store = await own_service.connect()
    states: list[SessionState] = []
    store.on_session(states.append)
    own_server.kill()
    await eventually(lambda: SessionState.SUSPENDED in states)
    own_service.hurry(store)
    with pytest.raises(StoreUnavailableError) as caught:
        await store.create("/a", b"")
    assert own_server.address in str(caught.value)
    await own_server.start()
    await eventually(lambda: store.session_state is SessionState.CONNECTED)
    assert await (await own_service.connect()).children("/", fresh=True) == []


async def test_closing_is_bounded_while_the_server_is_silent(
    own_server: EmbeddedZooKeeper,
) -> None:
    service = ZooKeeperService(own_server.uri, session_timeout_s=SESSION_S)
    store = await service.connect()
    await pause(own_server)
    await within(store.aclose())
    own_server.resume()


async def test_a_forked_process_may_not_use_the_store(own_service: ZooKeeperService) -> None:
    own_service.session_timeout_s = SESSION_S
    store = await own_service.connect()
    await store.create("/live", b"", ephemeral=True)
    pid = os.fork()
    if pid == 0:
        try:
            store.get("/live").send(None)
        except StoreClosedError:
            os._exit(7)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    assert (await store.get("/live", fresh=True)).ephemeral
