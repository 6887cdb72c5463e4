"""The key of repair is made once, and read by everyone after it."""

import random

import pytest

from metadata.errors import MetadataFormatError
from metadata.paths import REPAIR_KEY
from metadata.repair.repair_key import (
    REPAIR_KEY_BYTES,
    read_or_create_repair_key,
    read_repair_key,
)
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults


async def test_the_first_use_makes_the_key_for_all(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    assert await read_repair_key(store) is None
    key = await read_or_create_repair_key(store, rng)
    assert len(key) == REPAIR_KEY_BYTES
    assert await read_or_create_repair_key(other_store, rng) == key
    assert await read_repair_key(other_store) == key
    assert (await store.get(REPAIR_KEY)).value == key


@pytest.mark.parametrize("act", ["lost", "dropped", "late"])
async def test_an_unknown_outcome_is_decided_by_the_stored_key(
    store: MemoryMetadataStore, rng: random.Random, faults: ScriptedFaults, act: str
) -> None:
    await store.create("/repair", b"")  # so that only the key is written next
    faults.acts = [act]
    key = await read_or_create_repair_key(store, rng)
    assert await read_repair_key(store) == key
    assert await read_or_create_repair_key(store, rng) == key


@pytest.mark.parametrize("value", [b"", bytes(31), bytes(33)])
async def test_another_value_is_no_key(
    store: MemoryMetadataStore, rng: random.Random, value: bytes
) -> None:
    await store.create(REPAIR_KEY, value)
    for reading in (read_repair_key(store), read_or_create_repair_key(store, rng)):
        with pytest.raises(MetadataFormatError, match=f"has {len(value)} bytes instead of 32"):
            await reading
