"""What a session keeps when it moves between the servers of an ensemble (protocol 1.3 and 1.6): a
leader that was replaced, a server that lags, one that is silent, a session that moved.
"""

import asyncio
from random import Random

import pytest

from metadata.errors import OutcomeUnknownError, StoreUnavailableError, VersionConflictError
from metadata.ids import EntryId, Version
from metadata.ledgers.codec import encode_ledger_metadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import ledger_path
from metadata.store.interface import CompareAndSet, Create, MetadataStore, SessionState
from metadata.store.zookeeper.store import open_store
from tests.support.metadata.samples import A, B, D, E, open_ledger, token
from tests.support.metadata.scripted_zookeeper import (
    ScriptedEnsemble,
    ScriptedZooKeeper,
    Standing,
)
from tests.until import until

PATH = "/quire/a"
MOVED = [SessionState.SUSPENDED, SessionState.CONNECTED]
SHORT_SESSION_MS = 3_000


@pytest.fixture
def states(ensemble_store: MetadataStore) -> list[SessionState]:
    states: list[SessionState] = []
    ensemble_store.on_session(states.append)
    return states


def server_of(ensemble: ScriptedEnsemble, store: MetadataStore) -> ScriptedZooKeeper:
    return ensemble.server_of(store.session_id)


async def leave(server: ScriptedZooKeeper, states: list[SessionState]) -> None:
    """Cut a server's connections, and wait until the client has found another server."""
    before = len(states)
    server.cut()
    await until(lambda: SessionState.CONNECTED in states[before:])


def lag(servers: list[ScriptedZooKeeper]) -> None:
    for server in servers:
        server.standing = Standing.LAGGING


def ledger_store(store: MetadataStore) -> LedgerStore:
    return LedgerStore(store, Random(7), lambda: 5)


# -- a session that moves --------------------------------------------------------------------------


async def test_a_session_and_its_nodes_move_to_another_server(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore, states: list[SessionState]
) -> None:
    first, session_id = server_of(ensemble, ensemble_store), ensemble_store.session_id
    await ensemble_store.create("/live", b"", ephemeral=True)
    await leave(first, states)
    assert server_of(ensemble, ensemble_store) is not first, "the last one tried comes last"
    assert (states, ensemble_store.session_id) == (MOVED, session_id)
    assert (await ensemble_store.get("/live")).ephemeral


async def test_a_read_of_a_moved_session_is_repeated(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore
) -> None:
    ensemble.service.commit([Create(PATH, b"new")])
    ensemble.service.move_session(ensemble_store.session_id)
    assert (await ensemble_store.get("/a", fresh=True)).value == b"new"
    ensemble.service.move_session(ensemble_store.session_id)
    assert (await ensemble_store.get("/a", agreed=True)).value == b"new"


async def test_the_outcome_of_a_write_of_a_moved_session_is_unknown(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore
) -> None:
    await ensemble_store.create("/a", b"0")
    ensemble.service.move_session(ensemble_store.session_id)
    with pytest.raises(OutcomeUnknownError):
        await ensemble_store.compare_and_set("/a", b"1", Version(0))
    assert (await ensemble_store.get("/a", fresh=True)).value == b"0"
    assert await ensemble_store.compare_and_set("/a", b"1", Version(0)) == 1


async def test_a_write_that_waits_at_the_old_server_is_decided_by_its_repetition(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore, states: list[SessionState]
) -> None:
    """The old version decides nothing: the first request may still apply (protocol 1.3)."""
    ledgers, ledger = ledger_store(ensemble_store), open_ledger()
    version = await ledgers.create(ledger)
    changed = ledger.with_ensemble_change(EntryId(5), (A, B, D), token(3))
    slow = server_of(ensemble, ensemble_store)
    slow.holds = ["set"]
    changing = asyncio.create_task(ledgers.compare_and_set(changed, version))
    await until(lambda: bool(slow.held))
    await leave(slow, states)
    assert await changing == version + 1
    slow.held[0]()
    assert await ledgers.get(ledger.ledger_id, fresh=True) == (changed, version + 1)


async def test_a_write_that_the_old_server_applied_is_not_applied_twice(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore, states: list[SessionState]
) -> None:
    ledgers, ledger = ledger_store(ensemble_store), open_ledger()
    version = await ledgers.create(ledger)
    changed = ledger.with_ensemble_change(EntryId(5), (A, B, D), token(3))
    slow = server_of(ensemble, ensemble_store)
    slow.holds = ["set"]
    changing = asyncio.create_task(ledgers.compare_and_set(changed, version))
    await until(lambda: bool(slow.held))
    slow.held[0]()
    await leave(slow, states)
    assert await changing == version + 1
    assert await ledgers.get(ledger.ledger_id, fresh=True) == (changed, version + 1)


# -- a leader that was replaced --------------------------------------------------------------------


async def test_a_fresh_read_that_a_replaced_leader_answers_is_current_at_the_next_server(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore, states: list[SessionState]
) -> None:
    await ensemble_store.create("/a", b"old")
    replaced = server_of(ensemble, ensemble_store)
    lag(ensemble.others(replaced))
    replaced.standing = Standing.LEADER_REPLACED
    ensemble.service.commit([CompareAndSet(PATH, b"new", Version(0))])
    assert (await ensemble_store.get("/a", fresh=True)).value == b"old"
    await leave(replaced, states)
    assert (await ensemble_store.get("/a", fresh=True)).value == b"new"


async def test_an_agreed_read_moves_to_a_server_that_has_a_quorum(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore, states: list[SessionState]
) -> None:
    await ensemble_store.create("/a", b"old")
    replaced = server_of(ensemble, ensemble_store)
    lag(ensemble.others(replaced))
    replaced.standing = Standing.LEADER_REPLACED
    ensemble.service.commit([CompareAndSet(PATH, b"new", Version(0))])
    reading = asyncio.create_task(ensemble_store.get("/a", agreed=True))
    await until(lambda: "multi" in replaced.requests)
    assert not reading.done()
    await leave(replaced, states)
    assert (await reading).value == b"new"


async def test_a_change_on_what_a_replaced_leader_answered_fails(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore, states: list[SessionState]
) -> None:
    """A compare-and-set follows each fresh read that matters: it meets the newer version."""
    ledgers, ledger = ledger_store(ensemble_store), open_ledger()
    await ledgers.create(ledger)
    replaced = server_of(ensemble, ensemble_store)
    replaced.standing = Standing.LEADER_REPLACED
    of_another = encode_ledger_metadata(
        ledger.with_ensemble_change(EntryId(3), (A, B, E), token(9))
    )
    path = "/quire" + ledger_path(ledger.ledger_id)
    ensemble.service.commit([CompareAndSet(path, of_another, Version(0))])
    old, version = await ledgers.get(ledger.ledger_id, fresh=True)
    assert (old, version) == (ledger, 0)
    changed = old.with_ensemble_change(EntryId(5), (A, B, D), token(3))
    changing = asyncio.create_task(ledgers.compare_and_set(changed, version))
    await until(lambda: "set" in replaced.requests)
    await leave(replaced, states)
    with pytest.raises(VersionConflictError):
        await changing


# -- a server that lags ----------------------------------------------------------------------------


@pytest.mark.parametrize("is_new_session", [False, True])
async def test_a_server_that_is_behind_is_not_used(
    ensemble: ScriptedEnsemble,
    ensemble_store: MetadataStore,
    states: list[SessionState],
    is_new_session: bool,
) -> None:
    """No client reads an older state than before, also in a new session."""
    await ensemble_store.create("/a", b"old")
    first = server_of(ensemble, ensemble_store)
    lag(ensemble.others(first))
    await ensemble_store.compare_and_set("/a", b"new", Version(0))
    old_session = ensemble_store.session_id
    for _ in range(3):
        before = len(states)
        if is_new_session:
            ensemble.service.end_session(ensemble_store.session_id)
        first.cut()
        await until(lambda: SessionState.CONNECTED in states[before:])  # noqa: B023
        assert (await ensemble_store.get("/a")).value == b"new"
    assert (ensemble_store.session_id != old_session) == is_new_session
    assert sum(server.refused for server in ensemble.servers) > 0


async def test_a_read_fails_where_only_servers_that_are_behind_are_left(
    ensemble: ScriptedEnsemble,
    ensemble_store: MetadataStore,
    states: list[SessionState],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await ensemble_store.create("/a", b"old")
    first = server_of(ensemble, ensemble_store)
    others = ensemble.others(first)
    lag(others)
    await ensemble_store.compare_and_set("/a", b"new", Version(0))
    await first.stop()
    await until(lambda: SessionState.SUSPENDED in states)
    with monkeypatch.context() as patched:
        patched.setattr(ensemble_store, "_operation_timeout_s", 0.5)
        with pytest.raises(StoreUnavailableError):
            await ensemble_store.get("/a")
    others[0].catch_up()
    assert (await ensemble_store.get("/a")).value == b"new"
    await first.start()


# -- a server that is silent -----------------------------------------------------------------------


async def test_a_busy_session_leaves_a_silent_server_before_it_ends(
    ensemble: ScriptedEnsemble,
) -> None:
    """Kazoo alone stays while it has requests to send, until the session has ended."""
    ensemble.service.session_timeout_ms = SHORT_SESSION_MS
    store = await open_store(
        f"{ensemble.uri}/quire", rng=Random(7), session_timeout_s=SHORT_SESSION_MS / 1000
    )
    states: list[SessionState] = []
    store.on_session(states.append)
    await store.create("/a", b"0")
    silent, session_id = server_of(ensemble, store), store.session_id
    silent.pause()
    try:
        async with asyncio.TaskGroup() as reads:
            while SessionState.CONNECTED not in states:
                reads.create_task(store.get("/a"))
                await asyncio.sleep(0.05)
                assert SessionState.EXPIRED not in states
        assert (states, store.session_id) == (MOVED, session_id)
        assert server_of(ensemble, store) is not silent
    finally:
        silent.resume()
        await store.aclose()
