"""A kept ephemeral node across sessions, and nodes of other sessions in its place."""

import asyncio

import pytest

from metadata.errors import NameHeldError
from metadata.store.ephemeral import HeldNode, pack_held
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.unit.metadata.store.test_ephemeral import OURS, PATH, THEIRS, held, keeper, version


async def test_a_new_session_has_a_new_node(store: MemoryMetadataStore) -> None:
    kept = keeper(store)
    await kept.start()
    first = store.session_id
    store.expire()
    await asyncio.sleep(1)
    assert store.session_id != first
    assert await held(store) == HeldNode(OURS, store.session_id, b"content")
    await kept.aclose()


async def test_a_new_session_has_a_new_node_before_the_news_of_the_old_one(
    store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    kept = keeper(store)
    await kept.start()
    faults.news_s = 60.0
    store.expire()
    await asyncio.sleep(1)
    assert await held(store) == HeldNode(OURS, store.session_id, b"content")
    await kept.aclose()


async def test_a_node_of_another_session_is_replaced_before_the_news_of_its_removal(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, faults: ScriptedFaults
) -> None:
    kept = keeper(store)
    await kept.start()
    faults.news_s = 60.0
    await other_store.delete(PATH, await version(other_store))
    value = pack_held(HeldNode(OURS, other_store.session_id, b"content"))
    await other_store.create(PATH, value, ephemeral=True)
    kept.set_content(b"other")
    await asyncio.sleep(1)
    await other_store.aclose()
    assert await held(store) == HeldNode(OURS, store.session_id, b"other")
    await kept.aclose()


async def test_a_node_of_an_earlier_session_of_this_process_is_replaced(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore
) -> None:
    """It looks like ours, and vanishes with its session."""
    value = pack_held(HeldNode(OURS, other_store.session_id, b"content"))
    await other_store.create(PATH, value, ephemeral=True)
    kept = keeper(store)
    await kept.start()
    await other_store.aclose()
    await asyncio.sleep(1)
    assert await held(store) == HeldNode(OURS, store.session_id, b"content")
    await kept.aclose()


async def test_a_node_of_this_session_and_another_process_is_not_overwritten(
    store: MemoryMetadataStore,
) -> None:
    value = pack_held(HeldNode(THEIRS, store.session_id, b"theirs"))
    await store.create(PATH, value, ephemeral=True)
    with pytest.raises(NameHeldError):
        await keeper(store).start(held_wait_s=0.0)
    assert (await store.get(PATH)).value == value
