"""Numbers, and replica numbers of bookies, are unique, also when answers are lost."""

import asyncio
import random

import pytest

from metadata.errors import MetadataError, MetadataFormatError, StoreUnavailableError
from metadata.ids import BookieId
from metadata.paths import PRODUCER_IDS, replica_path
from metadata.store.memory import MemoryMetadataStore
from metadata.store.number_blocks import (
    ATTEMPTS_MAX,
    BLOCK_NUMBERS,
    NUMBER_MAX,
    NumberBlocks,
    pack_block,
    unpack_block,
)
from metadata.topics.replica_numbers import REPLICA_ID_FIRST, ReplicaNumbers
from metadata.topics.topic import BROKER_ID_MAX
from tests.support.metadata.samples import A, B, C
from tests.support.metadata.scripted_faults import ScriptedFaults, reads_of
from tests.unit.metadata.conftest import RETRIES_S_MIN, taken_s

ACTS = ["", "lost", "dropped", "late"]


async def test_numbers_of_several_owners_are_unique(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    owners = [
        NumberBlocks(metadata_store, rng, PRODUCER_IDS, 10)
        for metadata_store in (store, other_store, store)
    ]
    numbers = await asyncio.gather(*[owners[i % 3].next() for i in range(300)])
    assert len(dict.fromkeys(numbers)) == 300
    assert min(numbers) == 0


async def test_a_block_costs_one_write(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    blocks = NumberBlocks(store, rng, PRODUCER_IDS)
    await blocks.next()
    faults.writes.clear()
    assert [await blocks.next() for _ in range(BLOCK_NUMBERS)] == list(range(1, BLOCK_NUMBERS + 1))
    assert faults.writes == ["compare_and_set"]


@pytest.mark.parametrize("act", ACTS)
async def test_a_block_of_unknown_outcome_is_not_used(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, act: str
) -> None:
    first, second = (NumberBlocks(store, rng, PRODUCER_IDS, 2) for _ in range(2))
    numbers = [await first.next()]
    faults.acts = [act]
    numbers += [await second.next() for _ in range(5)]
    await asyncio.sleep(faults.late_s)
    numbers += [await first.next() for _ in range(5)]
    assert len(dict.fromkeys(numbers)) == len(numbers)


async def test_an_unavailable_service_raises(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        await NumberBlocks(store, rng, PRODUCER_IDS).next()


async def test_numbers_end_at_the_maximum(store: MemoryMetadataStore, rng: random.Random) -> None:
    blocks = NumberBlocks(store, rng, PRODUCER_IDS, 2, first=5, last=8)
    assert [await blocks.next() for _ in range(4)] == [5, 6, 7, 8]
    with pytest.raises(MetadataError):
        await blocks.next()


async def test_a_block_with_a_number_above_the_maximum_is_not_used(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    blocks = NumberBlocks(store, rng, PRODUCER_IDS, 2, first=5, last=7)
    assert [await blocks.next() for _ in range(2)] == [5, 6]
    with pytest.raises(MetadataError, match="has been allocated"):
        await blocks.next()


async def test_attempts_pause_and_end(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    faults.acts = ["dropped"] * (ATTEMPTS_MAX + 1)

    async def fail() -> None:
        with pytest.raises(MetadataError, match=f"{ATTEMPTS_MAX} attempts"):
            await NumberBlocks(store, rng, PRODUCER_IDS).next()

    assert await taken_s(fail()) > RETRIES_S_MIN
    assert len(faults.acts) == 1


async def test_the_largest_value_says_that_every_number_is_in_a_block(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    assert unpack_block(PRODUCER_IDS, pack_block(PRODUCER_IDS, NUMBER_MAX + 1), 0) == NUMBER_MAX + 1
    with pytest.raises(MetadataFormatError):
        unpack_block(PRODUCER_IDS, pack_block(PRODUCER_IDS, NUMBER_MAX + 2), 0)
    await store.create(PRODUCER_IDS, pack_block(PRODUCER_IDS, NUMBER_MAX + 1))
    with pytest.raises(MetadataError, match="has been allocated"):
        await NumberBlocks(store, rng, PRODUCER_IDS).next()


@pytest.mark.parametrize("value", [b"", b"17", b"\x92\x01\xa1x", b"\x92\x02\x01"])
async def test_an_unreadable_value_is_a_format_error(
    store: MemoryMetadataStore, rng: random.Random, value: bytes
) -> None:
    await store.create(PRODUCER_IDS, value)
    await store.create(replica_path(A), value)
    with pytest.raises(MetadataFormatError):
        await NumberBlocks(store, rng, PRODUCER_IDS).next()
    with pytest.raises(MetadataFormatError):
        await ReplicaNumbers(store, rng).number_of(A)


async def test_a_bookie_has_one_number_for_all(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    assert REPLICA_ID_FIRST > BROKER_ID_MAX
    views = [ReplicaNumbers(metadata_store, rng) for metadata_store in (store, other_store, store)]
    bookies = [BookieId(f"b{i}") for i in range(8)]
    found = await asyncio.gather(*[view.numbers_of(bookies) for view in views])
    assert found == [found[0]] * 3
    assert len(dict.fromkeys(found[0])) == len(bookies)
    assert min(found[0]) >= REPLICA_ID_FIRST


async def test_numbers_are_cached(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    view = ReplicaNumbers(store, rng)
    assert view.known_number(A) is None
    number = await view.number_of(A)
    faults.meets, faults.refusals = reads_of(store), 10**6
    assert await view.number_of(A) == view.known_number(A) == number


@pytest.mark.parametrize("act", ACTS)
async def test_the_stored_number_wins(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, act: str
) -> None:
    view = ReplicaNumbers(store, rng)
    await view.number_of(A)
    faults.acts = ["", act]  # the number is taken, then given
    number = await view.number_of(B)
    await asyncio.sleep(faults.late_s * 2)
    assert await ReplicaNumbers(store, rng).numbers_of([A, B]) == (await view.number_of(A), number)
    assert await view.number_of(C) > number


async def test_a_block_can_be_left(store: MemoryMetadataStore, rng: random.Random) -> None:
    numbers = NumberBlocks(store, rng, PRODUCER_IDS)
    assert [await numbers.next(), await numbers.next()] == [0, 1]
    numbers.leave_block()
    assert await numbers.next() == BLOCK_NUMBERS
    assert await numbers.next() == BLOCK_NUMBERS + 1
