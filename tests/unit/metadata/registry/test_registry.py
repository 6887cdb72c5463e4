"""Registering and following bookies: one holder per id, across sessions, and no bookie is dropped
because the store is silent.
"""

import asyncio
import random
from dataclasses import replace

import pytest

from metadata.errors import NodeNotFoundError
from metadata.paths import BOOKIES, bookie_path, client_path
from metadata.registry.registry import (
    BookieChanged,
    BookieDirectory,
    BookieJoined,
    BookieLeft,
    BookieRegistrar,
    BookieRegistration,
    ClientRegistration,
    DirectoryEvent,
    NameHeldError,
)
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.metadata.samples import A, B
from tests.support.metadata.scripted_faults import ScriptedFaults, reads_of
from tests.until import until

REGISTRATION = BookieRegistration(A, "host-a", 3181, capacity_bytes=1000, free_bytes=500)
OTHER = BookieRegistration(B, "host-b", 3181)
INCARNATION = bytes(16)


async def directory_on(
    store: MemoryMetadataStore, rng: random.Random
) -> tuple[BookieDirectory, list[DirectoryEvent]]:
    directory = BookieDirectory(store, rng, jitter_s=0.005)
    events: list[DirectoryEvent] = []
    directory.on_event(events.append)
    await directory.start()
    return directory, events


async def test_a_directory_shows_the_live_ones(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    registrar = BookieRegistrar(store, REGISTRATION, rng)
    await registrar.start()
    directory, events = await directory_on(other_store, rng)
    assert directory.bookies == {A: REGISTRATION}
    second = BookieRegistrar(store, OTHER, rng)
    await second.start()
    await until(lambda: B in directory.bookies)
    await registrar.aclose()
    await until(lambda: A not in directory.bookies)
    assert events == [BookieJoined(REGISTRATION), BookieJoined(OTHER), BookieLeft(A)]
    await directory.aclose()
    await second.aclose()


async def test_a_callback_that_raises_does_not_end_the_directory(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, what: reports.append(what))
    directory, _ = await directory_on(other_store, rng)

    def fail(event: DirectoryEvent) -> None:
        raise LookupError(event)

    directory.on_event(fail)
    registrar = BookieRegistrar(store, REGISTRATION, rng)
    await registrar.start()
    await until(lambda: A in directory.bookies)
    await registrar.aclose()
    await until(lambda: A not in directory.bookies)
    second = BookieRegistrar(store, OTHER, rng)
    await second.start()
    await until(lambda: B in directory.bookies)
    assert len(reports) == 1, "one callback is reported once"
    await directory.aclose()
    await second.aclose()


async def test_a_change_is_reported(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    registrar = BookieRegistrar(store, REGISTRATION, rng)
    await registrar.start()
    directory, events = await directory_on(other_store, rng)
    registrar.update(replace(REGISTRATION, free_bytes=499))
    read_only = replace(REGISTRATION, writable=False, free_bytes=10)
    registrar.update(read_only)
    await until(lambda: directory.bookies[A] == read_only)
    assert events[1:] == [BookieChanged(read_only)]
    await directory.aclose()
    await registrar.aclose()


async def test_a_registration_returns_with_a_new_session(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    registrar = BookieRegistrar(store, REGISTRATION, rng)
    await registrar.start()
    directory, events = await directory_on(other_store, rng)
    first = await other_store.get(bookie_path(A))
    store.expire()
    await until(lambda: BookieLeft(A) in events and A in directory.bookies)
    again = await other_store.get(bookie_path(A), fresh=True)
    assert again.ephemeral
    assert again.value != first.value
    await directory.aclose()
    await registrar.aclose()


async def test_a_registration_returns_before_the_watch_calls(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    rng: random.Random,
    faults: ScriptedFaults,
) -> None:
    registrar = BookieRegistrar(store, REGISTRATION, rng)
    await registrar.start()
    first = await other_store.get(bookie_path(A))
    faults.news_s = 60.0
    store.expire()
    await asyncio.sleep(0.5)
    again = await other_store.get(bookie_path(A), fresh=True)
    assert again.value != first.value
    await registrar.aclose()


async def test_an_end_does_not_wait_for_a_silent_service(
    store: MemoryMetadataStore, rng: random.Random, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def never(*_: object, **__: object) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr("metadata.store.ephemeral.REMOVE_S_MAX", 0.05)
    registrar = BookieRegistrar(store, REGISTRATION, rng)
    await registrar.start()
    monkeypatch.setattr(store, "get", never)
    await registrar.aclose()


async def test_an_id_has_one_live_holder(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    first = BookieRegistrar(store, REGISTRATION, rng)
    await first.start()
    second = BookieRegistrar(other_store, REGISTRATION, rng)
    with pytest.raises(NameHeldError):
        await second.start(held_wait_s=0.0)
    waiting = asyncio.create_task(second.start(held_wait_s=20.0))
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await first.aclose()
    await waiting
    await second.aclose()


async def test_a_holder_known_to_be_dead_is_replaced_at_once(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    first = BookieRegistrar(store, REGISTRATION, rng, incarnation=INCARNATION)
    await first.start()
    lost: list[NameHeldError] = []
    store.suspend()
    second = BookieRegistrar(
        other_store, REGISTRATION, rng, dead_incarnations=(INCARNATION,), on_lost=lost.append
    )
    await second.start(held_wait_s=0.0)
    assert lost == []
    await second.aclose()
    await first.aclose()


async def test_a_process_that_lost_its_id_is_notified(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    lost: list[NameHeldError] = []
    first = BookieRegistrar(store, REGISTRATION, rng, incarnation=INCARNATION, on_lost=lost.append)
    await first.start()
    store.suspend()
    second = BookieRegistrar(other_store, REGISTRATION, rng, dead_incarnations=(INCARNATION,))
    await second.start(held_wait_s=0.0)
    store.resume()
    await until(lambda: len(lost) == 1)
    await first.aclose()
    assert (await other_store.get(bookie_path(A))).ephemeral
    await second.aclose()


@pytest.mark.parametrize("act", ["lost", "dropped", "late"])
async def test_registering_survives_an_unknown_outcome(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
    rng: random.Random,
    act: str,
) -> None:
    await other_store.create(BOOKIES, b"")
    faults.acts = [act]
    registrar = BookieRegistrar(store, REGISTRATION, rng)
    await registrar.start()
    await asyncio.sleep(faults.late_s)
    assert (await other_store.get(bookie_path(A))).ephemeral
    await registrar.aclose()
    with pytest.raises(NodeNotFoundError):
        await other_store.get(bookie_path(A))


async def test_a_silent_store_drops_no_bookie(
    server: MemoryMetadataServer, store: MemoryMetadataStore, rng: random.Random
) -> None:
    registrar = BookieRegistrar(store, REGISTRATION, rng)
    await registrar.start()
    client = MemoryMetadataStore(server, operation_timeout_s=0.01, session_timeout_s=0.05)
    directory, events = await directory_on(client, rng)
    client.suspend()
    await asyncio.sleep(0.1)
    assert directory.bookies == {A: REGISTRATION}
    second = BookieRegistrar(store, OTHER, rng)
    await second.start()
    await registrar.aclose()
    client.resume()
    await until(lambda: list(directory.bookies) == [B])
    assert events == [BookieJoined(REGISTRATION), BookieLeft(A), BookieJoined(OTHER)]
    await directory.aclose()
    await second.aclose()
    await client.aclose()


async def test_reads_that_fail_are_repeated(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
    rng: random.Random,
) -> None:
    directory, events = await directory_on(other_store, rng)
    registrar = BookieRegistrar(store, REGISTRATION, rng)
    await registrar.start()
    await until(lambda: A in directory.bookies)
    faults.meets = reads_of(other_store)
    for _ in range(5):
        faults.refusals = 3
        await registrar.aclose()
        await until(lambda: A not in directory.bookies)
        registrar = BookieRegistrar(store, REGISTRATION, rng)
        await registrar.start()
        faults.refusals = 3
        await until(lambda: A in directory.bookies)
    assert events.count(BookieLeft(A)) == 5
    await directory.aclose()
    await registrar.aclose()


async def test_unreadable_registrations_are_not_used(
    store: MemoryMetadataStore, rng: random.Random, caplog: pytest.LogCaptureFixture
) -> None:
    await store.create(bookie_path(B), b"garbage", ephemeral=True)
    registrar = BookieRegistrar(store, REGISTRATION, rng)
    await registrar.start()
    directory, _ = await directory_on(store, rng)
    assert list(directory.bookies) == [A]
    assert str(B) in caplog.text
    await directory.aclose()
    await registrar.aclose()


async def test_a_client_is_known_while_it_lives(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    client = ClientRegistration(store, rng)
    await client.start()
    path = client_path(client.client_id)
    assert (await other_store.get(path)).ephemeral
    session_id = store.session_id
    store.expire()
    assert store.session_id != session_id
    async with asyncio.timeout(20):
        while await other_store.children("/clients") == []:  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    await client.aclose()
    with pytest.raises(NodeNotFoundError):
        await other_store.get(path)
