"""A registration is rewritten at once, when only free space changed once a minute, and never for
nothing.
"""

import asyncio
import gc
import random
import weakref
from dataclasses import replace

import pytest

from metadata.errors import NodeNotFoundError
from metadata.paths import bookie_path, client_path
from metadata.registry.registrar import BookieRegistrar, ClientRegistration
from metadata.registry.registration import (
    REGISTRATION_CODEC,
    REWRITE_INTERVAL_S,
    BookieRegistration,
)
from metadata.store.ephemeral import unpack_held
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.samples import A
from tests.support.metadata.scripted_faults import ScriptedFaults

PLAIN = BookieRegistration(A, "host-a", 3181, capacity_bytes=1000, free_bytes=500)
SOON_S = 0.1


def with_free(free_bytes: int) -> BookieRegistration:
    return replace(PLAIN, free_bytes=free_bytes)


@pytest.fixture
async def registrar(
    store: MemoryMetadataStore, rng: random.Random, faults: ScriptedFaults
) -> BookieRegistrar:
    await asyncio.sleep(10 * REWRITE_INTERVAL_S)  # a loop's clock does not begin with the process
    registrar = BookieRegistrar(store, PLAIN, rng)
    await registrar.start()
    faults.writes.clear()
    return registrar


async def stored_by(store: MemoryMetadataStore) -> BookieRegistration:
    path = bookie_path(A)
    stored = await store.get(path, fresh=True)
    return REGISTRATION_CODEC.unpack("a registration", unpack_held(path, stored.value).content)


async def test_free_space_alone_is_written_once_a_minute(
    store: MemoryMetadataStore, registrar: BookieRegistrar, faults: ScriptedFaults
) -> None:
    registrar.update(with_free(400))
    await asyncio.sleep(0.9 * REWRITE_INTERVAL_S)
    assert await stored_by(store) == PLAIN
    registrar.update(with_free(300))
    await asyncio.sleep(0.1 * REWRITE_INTERVAL_S + SOON_S)
    assert await stored_by(store) == with_free(300)
    registrar.update(with_free(200))
    await asyncio.sleep(REWRITE_INTERVAL_S - 2 * SOON_S)
    assert await stored_by(store) == with_free(300)
    await asyncio.sleep(2 * SOON_S)
    assert await stored_by(store) == with_free(200)
    assert len(faults.writes) == 2
    await registrar.aclose()


async def test_the_last_second_of_a_minute_counts(
    registrar: BookieRegistrar, faults: ScriptedFaults
) -> None:
    await asyncio.sleep(REWRITE_INTERVAL_S - 1.0)
    registrar.update(with_free(400))
    await asyncio.sleep(0.9)
    assert faults.writes == []
    await asyncio.sleep(SOON_S + SOON_S)
    assert len(faults.writes) == 1
    await registrar.aclose()


async def test_a_change_that_is_taken_back_is_not_written(
    registrar: BookieRegistrar, faults: ScriptedFaults
) -> None:
    registrar.update(with_free(400))
    registrar.update(PLAIN)
    await asyncio.sleep(2 * REWRITE_INTERVAL_S)
    assert faults.writes == []
    await registrar.aclose()


async def test_an_urgent_change_replaces_one_that_waits(
    store: MemoryMetadataStore, registrar: BookieRegistrar, faults: ScriptedFaults
) -> None:
    read_only = replace(PLAIN, writable=False)
    registrar.update(with_free(400))
    registrar.update(read_only)
    await asyncio.sleep(SOON_S)
    assert await stored_by(store) == read_only
    await asyncio.sleep(2 * REWRITE_INTERVAL_S)
    assert await stored_by(store) == read_only
    assert len(faults.writes) == 1
    registrar.update(PLAIN)
    await asyncio.sleep(SOON_S)
    assert await stored_by(store) == PLAIN
    await registrar.aclose()


async def test_an_urgent_change_does_not_wait_for_the_next_one(
    store: MemoryMetadataStore, registrar: BookieRegistrar, faults: ScriptedFaults
) -> None:
    read_only = replace(PLAIN, writable=False)
    registrar.update(read_only)
    registrar.update(replace(read_only, free_bytes=400))
    await asyncio.sleep(SOON_S)
    assert await stored_by(store) == read_only
    await asyncio.sleep(REWRITE_INTERVAL_S)
    assert await stored_by(store) == replace(read_only, free_bytes=400)
    assert len(faults.writes) == 2
    await registrar.aclose()


async def test_a_registration_that_is_not_wanted_is_gone_until_it_is_wanted_again(
    store: MemoryMetadataStore, registrar: BookieRegistrar
) -> None:
    registrar.want(registered=False)
    await asyncio.sleep(SOON_S)
    with pytest.raises(NodeNotFoundError):
        await stored_by(store)
    registrar.update(replace(PLAIN, writable=False))
    await asyncio.sleep(SOON_S)
    with pytest.raises(NodeNotFoundError):
        await stored_by(store)
    registrar.want(registered=True)
    await asyncio.sleep(SOON_S)
    assert await stored_by(store) == replace(PLAIN, writable=False)
    await registrar.aclose()


async def test_the_end_removes_the_registration_while_a_change_waits(
    store: MemoryMetadataStore, registrar: BookieRegistrar
) -> None:
    registrar.update(with_free(400))
    await registrar.aclose()
    await asyncio.sleep(2 * REWRITE_INTERVAL_S)
    with pytest.raises(NodeNotFoundError):
        await stored_by(store)


async def test_nothing_keeps_a_registrar_after_its_end(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    registrar = BookieRegistrar(store, PLAIN, rng)
    await registrar.start()
    registrar.update(with_free(400))
    await registrar.aclose()
    left = weakref.ref(registrar)
    del registrar
    gc.collect()
    assert left() is None, "a timer that waits would keep it"


async def test_a_clients_node_shows_its_build(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    client = ClientRegistration(store, rng, build="1.2")
    await client.start()
    path = client_path(client.client_id)
    assert unpack_held(path, (await store.get(path)).value).content == b"1.2"
    await client.aclose()
    with pytest.raises(NodeNotFoundError):
        await store.get(path, fresh=True)
