"""Watches that are lost with a connection, and changes that are made meanwhile (metadata design,
"Watches"): each change is followed by a call, over whichever server.
"""

import pytest

from metadata.ids import Version
from metadata.store.interface import CompareAndSet, Create, Delete, MetadataStore, Operation
from tests.support.metadata.scripted_zookeeper import (
    ScriptedEnsemble,
    ScriptedZooKeeper,
    Standing,
)
from tests.until import until

PATH = "/quire/a"
CHANGE = CompareAndSet(PATH, b"new", Version(0))


class Reader:
    """Reads again after each call of its watch, as every user must."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self) -> None:
        self.calls += 1


@pytest.fixture
async def reader(ensemble: ScriptedEnsemble, ensemble_store: MetadataStore) -> Reader:
    """Return the reader of a watched node; it was called for the arming of its watch."""
    ensemble.service.commit([Create(PATH, b"old")])
    reader = Reader()
    ensemble_store.watch_value("/a", reader)
    ensemble_store.watch_children("/a", reader)
    await until(lambda: reader.calls == 2)
    return reader


async def disconnect(ensemble: ScriptedEnsemble, store: MetadataStore) -> ScriptedZooKeeper:
    """Stop the server of a store; the others refuse it until they are resumed."""
    server = ensemble.server_of(store.session_id)
    for other in ensemble.others(server):
        other.pause()
    await server.stop()
    return server


def reconnect(ensemble: ScriptedEnsemble, stopped: ScriptedZooKeeper) -> None:
    for other in ensemble.others(stopped):
        other.resume()


async def test_news_come_while_connected(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore, reader: Reader
) -> None:
    ensemble.service.commit([CHANGE])
    await until(lambda: reader.calls == 3)
    assert (await ensemble_store.get("/a")).value == b"new"


@pytest.mark.parametrize(
    ("changes", "value", "names"),
    [
        ([CHANGE], b"new", []),
        ([Create(f"{PATH}/b", b"")], b"old", ["b"]),
        ([Delete(PATH, Version(0)), Create(PATH, b"again")], b"again", []),
    ],
    ids=["value", "names", "life"],
)
async def test_a_change_without_a_connection_is_reported_by_the_next_one(
    ensemble: ScriptedEnsemble,
    ensemble_store: MetadataStore,
    reader: Reader,
    changes: list[Operation],
    value: bytes,
    names: list[str],
) -> None:
    stopped = await disconnect(ensemble, ensemble_store)
    for change in changes:
        ensemble.service.commit([change])
    assert reader.calls == 2, "a lost connection is no news"
    reconnect(ensemble, stopped)
    await until(lambda: reader.calls >= 4)
    assert (await ensemble_store.get("/a")).value == value
    assert await ensemble_store.children("/a") == names
    await stopped.start()


async def test_a_change_that_the_next_server_has_not_seen_is_reported_when_it_has(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore, reader: Reader
) -> None:
    others = ensemble.others(ensemble.server_of(ensemble_store.session_id))
    for other in others:
        other.standing = Standing.LAGGING
    stopped = await disconnect(ensemble, ensemble_store)
    ensemble.service.commit([CHANGE])
    reconnect(ensemble, stopped)
    await until(lambda: reader.calls >= 4)
    assert (await ensemble_store.get("/a")).value == b"old"
    before = reader.calls
    for other in others:
        other.catch_up()
    await until(lambda: reader.calls > before)
    assert (await ensemble_store.get("/a")).value == b"new"
    await stopped.start()


async def test_a_change_between_two_sessions_is_reported_by_the_second(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore, reader: Reader
) -> None:
    session_id = ensemble_store.session_id
    ensemble.service.end_session(session_id)
    ensemble.service.commit([CHANGE])
    await until(lambda: reader.calls >= 4)
    assert ensemble_store.session_id != session_id
    assert (await ensemble_store.get("/a")).value == b"new"


async def test_a_cancelled_watch_is_not_armed_at_the_next_server(
    ensemble: ScriptedEnsemble, ensemble_store: MetadataStore
) -> None:
    reader, other = Reader(), Reader()
    cancel = ensemble_store.watch_value("/a", reader)
    ensemble_store.watch_value("/b", other)
    await until(lambda: (reader.calls, other.calls) == (1, 1))
    cancel()
    ensemble.server_of(ensemble_store.session_id).cut()
    await until(lambda: other.calls == 2)
    ensemble.service.commit([Create(PATH, b"")])
    ensemble.service.commit([Create("/quire/b", b"")])
    await until(lambda: other.calls == 3)
    assert reader.calls == 1
