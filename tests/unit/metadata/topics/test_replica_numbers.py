"""Numbers of bookies as brokers report them: found, allocated once, and cached."""

import random

import msgpack
import pytest

from metadata.errors import MetadataFormatError
from metadata.ids import BookieId
from metadata.paths import replica_path
from metadata.store.memory import MemoryMetadataStore
from metadata.topics.in_sync import REPLICA_ID_MAX
from metadata.topics.replica_numbers import REPLICA_ID_FIRST, ReplicaNumbers
from tests.support.metadata.scripted_faults import ScriptedFaults

A, B, C = map(BookieId, "abc")


async def test_each_bookie_gets_one_number_everywhere(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    here, there = ReplicaNumbers(store, rng), ReplicaNumbers(other_store, rng)
    assert here.known_number(A) is None
    assert await here.number_of(A) == REPLICA_ID_FIRST
    assert await there.numbers_of([B, A]) == (REPLICA_ID_FIRST + 1, REPLICA_ID_FIRST)
    assert await here.numbers_of([A, B, C]) == tuple(range(REPLICA_ID_FIRST, REPLICA_ID_FIRST + 3))
    assert (here.known_number(B), there.known_number(C)) == (REPLICA_ID_FIRST + 1, None)


async def test_a_known_number_is_not_read_again(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    numbers = ReplicaNumbers(store, rng)
    known = await numbers.number_of(A)
    await store.delete(replica_path(A), (await store.get(replica_path(A))).version)
    assert await numbers.number_of(A) == known


@pytest.mark.parametrize("act", ["lost", "dropped", "late"])
async def test_an_unknown_outcome_is_decided_by_the_stored_number(
    store: MemoryMetadataStore, rng: random.Random, faults: ScriptedFaults, act: str
) -> None:
    await ReplicaNumbers(store, rng).number_of(B)  # so that only the number itself is written next
    numbers = ReplicaNumbers(store, rng)
    faults.acts = ["", act]
    found = await numbers.number_of(A)
    assert await ReplicaNumbers(store, rng).number_of(A) == found


@pytest.mark.parametrize(
    "number", [REPLICA_ID_FIRST - 1, REPLICA_ID_MAX + 1, "text"], ids=["small", "large", "text"]
)
async def test_another_value_is_a_format_error(
    store: MemoryMetadataStore, rng: random.Random, number: object
) -> None:
    await store.create(replica_path(A), msgpack.packb([1, number]))
    with pytest.raises(MetadataFormatError, match=replica_path(A)):
        await ReplicaNumbers(store, rng).number_of(A)


async def test_the_largest_number_is_the_last(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    await store.create(replica_path(A), msgpack.packb([1, REPLICA_ID_MAX]))
    assert await ReplicaNumbers(store, rng).number_of(A) == REPLICA_ID_MAX
