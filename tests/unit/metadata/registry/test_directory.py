"""The directory of bookies shows what the last read found, reports each difference once, and uses
nothing that is not a bookie's.
"""

import asyncio
import random
from collections.abc import AsyncIterator

import pytest

from metadata.paths import BOOKIES, bookie_path
from metadata.registry.directory import BookieDirectory, BookieJoined, BookieLeft, DirectoryEvent
from metadata.registry.registrar import BookieRegistrar
from metadata.registry.registration import BookieRegistration
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.samples import A, B
from tests.until import until

REGISTRATION = BookieRegistration(A, "host-a", 3181)
LONG_S = 1_000.0


@pytest.fixture
async def registrar(
    store: MemoryMetadataStore, rng: random.Random
) -> AsyncIterator[BookieRegistrar]:
    registrar = BookieRegistrar(store, REGISTRATION, rng)
    await registrar.start()
    yield registrar
    await registrar.aclose()


async def started(
    store: MemoryMetadataStore, rng: random.Random, *, jitter_s: float = 0.0
) -> tuple[BookieDirectory, list[DirectoryEvent]]:
    directory = BookieDirectory(store, rng, jitter_s=jitter_s)
    events: list[DirectoryEvent] = []
    directory.on_event(events.append)
    await directory.start()
    return directory, events


async def test_a_refresh_reads_what_would_be_read_later(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    directory, events = await started(other_store, rng, jitter_s=LONG_S)
    registrar = BookieRegistrar(store, REGISTRATION, rng)
    await registrar.start()
    await asyncio.sleep(1.0)
    assert directory.bookies == {}
    await directory.refresh()
    assert directory.bookies == {A: REGISTRATION}
    assert events == [BookieJoined(REGISTRATION)]
    await asyncio.sleep(LONG_S)
    assert len(events) == 1
    await directory.aclose()
    await registrar.aclose()


@pytest.mark.usefixtures("registrar")
async def test_a_value_that_is_written_again_is_no_change(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    directory, events = await started(other_store, rng)
    stored = await store.get(bookie_path(A))
    await store.compare_and_set(bookie_path(A), stored.value, stored.version)
    await asyncio.sleep(1.0)
    assert events == [BookieJoined(REGISTRATION)]
    await directory.aclose()


@pytest.mark.usefixtures("registrar")
@pytest.mark.parametrize("name", ["not a bookie", str(B)])
async def test_a_node_that_is_not_its_bookies_is_ignored(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    rng: random.Random,
    caplog: pytest.LogCaptureFixture,
    name: str,
) -> None:
    """A copy of A's value under another name neither registers a bookie nor removes one."""
    path = f"{BOOKIES}/{name}"
    value = (await store.get(bookie_path(A))).value
    directory, events = await started(other_store, rng)
    await store.create(path, value.replace(b"host-a", b"host-x"))
    await asyncio.sleep(1.0)
    assert directory.bookies == {A: REGISTRATION}
    await store.delete(path, (await store.get(path)).version)
    await asyncio.sleep(1.0)
    assert events == [BookieJoined(REGISTRATION)]
    assert f"it describes bookie {A}" in caplog.text
    await directory.aclose()


async def test_a_closed_directory_keeps_what_it_knew(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    directory, events = await started(other_store, rng)
    registrar = BookieRegistrar(store, REGISTRATION, rng)
    await registrar.start()
    await until(lambda: A in directory.bookies)
    await directory.aclose()
    await registrar.aclose()
    await asyncio.sleep(1.0)
    assert directory.bookies == {A: REGISTRATION}
    assert BookieLeft(A) not in events
