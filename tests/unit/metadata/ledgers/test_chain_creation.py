"""A chain has one token from its creation to its deletion, whatever answer is lost."""

import asyncio
import random

import pytest

from metadata.errors import MetadataFormatError, StoreUnavailableError
from metadata.ids import UPDATE_TOKEN_BYTES, Version
from metadata.ledgers.chain_creation import NO_TOKEN
from metadata.ledgers.chain_store import ChainStore, Publication
from metadata.paths import chain_creation_path
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.unit.metadata.conftest import NOW_MS

NAME = "orders"


@pytest.fixture
def chains(store: MemoryMetadataStore, rng: random.Random) -> ChainStore:
    return ChainStore(store, rng, lambda: NOW_MS)


async def test_a_token_stays_while_the_head_changes(chains: ChainStore) -> None:
    await chains.create(NAME)
    token = await chains.creation_token(NAME)
    assert len(token) == UPDATE_TOKEN_BYTES
    await chains.publish(NAME, Publication(()))
    await chains.trim(NAME, 1)
    assert await chains.creation_token(NAME) == token
    await chains.delete(NAME)
    assert await chains.creation_token(NAME) == NO_TOKEN
    await chains.create(NAME)
    assert await chains.creation_token(NAME) not in (token, NO_TOKEN)


@pytest.mark.parametrize("act", ["lost", "dropped", "late"])
@pytest.mark.parametrize("is_first", [True, False])
async def test_an_unknown_outcome_is_decided(
    chains: ChainStore,
    faults: ScriptedFaults,
    act: str,
    is_first: bool,
) -> None:
    if not is_first:
        await chains.create("another")  # makes the parent
    faults.acts = ["", "", act] if is_first else [act]
    await chains.create(NAME)
    token = await chains.creation_token(NAME)
    await asyncio.sleep(faults.late_s * 2)
    assert await chains.creation_token(NAME) == token != NO_TOKEN
    await chains.head(NAME)


async def test_an_unknown_outcome_is_decided_after_a_publication(
    chains: ChainStore,
    other_store: MemoryMetadataStore,
    rng: random.Random,
    faults: ScriptedFaults,
) -> None:
    await chains.create("another")
    faults.acts = ["late", ""]
    creating = asyncio.create_task(chains.create(NAME))
    await asyncio.sleep(faults.late_s * 1.01)
    await ChainStore(other_store, rng, lambda: NOW_MS).publish(NAME, Publication(()))
    await creating


async def test_a_refused_creation_raises(chains: ChainStore, faults: ScriptedFaults) -> None:
    await chains.create("another")
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await chains.create(NAME)
    assert await chains.names() == ["another"]


async def test_other_bytes_are_a_format_error(
    chains: ChainStore, store: MemoryMetadataStore
) -> None:
    await chains.create(NAME)
    await store.compare_and_set(chain_creation_path(NAME), b"\x92\x01\xc4\x01a", Version(0))
    with pytest.raises(MetadataFormatError):
        await chains.creation_token(NAME)
