"""Ledger ids are unique, also when answers are lost."""

import asyncio
import random

import pytest

from metadata.errors import MetadataError, MetadataFormatError, StoreUnavailableError
from metadata.ledgers.ledger_ids import LedgerIdAllocator
from metadata.msgpack_fields import pack
from metadata.paths import LEDGER_IDS
from metadata.store.memory import MemoryMetadataStore
from metadata.store.number_blocks import NUMBER_MAX
from tests.support.metadata.scripted_faults import ScriptedFaults


async def test_ids_of_several_allocators_are_unique(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    allocators = [
        LedgerIdAllocator(metadata_store, rng, block_ids=10)
        for metadata_store in (store, other_store, store)
    ]
    ids = await asyncio.gather(*[allocators[i % 3].allocate() for i in range(300)])
    assert len(dict.fromkeys(ids)) == 300
    assert min(ids) == 1


async def test_a_block_costs_one_write(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    allocator = LedgerIdAllocator(store, rng)
    first = await allocator.allocate()
    faults.writes.clear()
    assert [await allocator.allocate() for _ in range(999)] == list(range(first + 1, first + 1000))
    assert faults.writes == []
    assert await allocator.allocate() == first + 1000


@pytest.mark.parametrize("act", ["lost", "dropped", "late"])
async def test_a_block_of_unknown_outcome_is_not_used(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, act: str
) -> None:
    first, second = (LedgerIdAllocator(store, rng, block_ids=2) for _ in range(2))
    ids = [await first.allocate()]
    faults.acts = [act]
    ids += [await second.allocate() for _ in range(5)]
    await asyncio.sleep(faults.late_s)
    ids += [await first.allocate() for _ in range(5)]
    assert len(dict.fromkeys(ids)) == len(ids)


async def test_an_unavailable_service_raises(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await LedgerIdAllocator(store, rng).allocate()


async def test_ids_end_at_the_maximum(store: MemoryMetadataStore, rng: random.Random) -> None:
    await store.create(LEDGER_IDS, pack(LEDGER_IDS, [1, NUMBER_MAX - 1]))
    allocator = LedgerIdAllocator(store, rng, block_ids=2)
    assert [await allocator.allocate() for _ in range(2)] == [NUMBER_MAX - 1, NUMBER_MAX]
    with pytest.raises(MetadataError):
        await allocator.allocate()


@pytest.mark.parametrize("value", [b"", b"17", b"\x92\x01\xa1x", b"\x92\x02\x01"])
async def test_an_unreadable_value_is_a_format_error(
    store: MemoryMetadataStore, rng: random.Random, value: bytes
) -> None:
    await store.create(LEDGER_IDS, value)
    with pytest.raises(MetadataFormatError):
        await LedgerIdAllocator(store, rng).allocate()
