"""A follower of deletions reads seldom, repeats reads that fail, and ends completely."""

import asyncio
import random
from itertools import pairwise

import pytest
from typing_extensions import override

from metadata.ids import LedgerId
from metadata.ledgers.deletion_feed import SHARD_INTERVAL_S, DeletionFollower, deletion_of
from metadata.paths import DELETION_SHARDS, deletion_shard_path
from metadata.store.interface import Cancel, WatchCallback
from metadata.store.memory import MemoryMetadataServer, MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.unit.metadata.conftest import NOW_MS

FIVES = [LedgerId(5 + DELETION_SHARDS * number) for number in range(20)]
"""Ledgers of one shard."""
FIRST_PAUSE_S_MAX = 0.05


class WatchedStore(MemoryMetadataStore):
    """Store that counts the watches that were not cancelled."""

    watch_count = 0

    @override
    def watch_children(self, path: str, callback: WatchCallback, *, holder: str = "") -> Cancel:
        cancel = super().watch_children(path, callback, holder=holder)
        self.watch_count += 1

        def count_and_cancel() -> None:
            self.watch_count -= 1
            cancel()

        return count_and_cancel


class Even(random.Random):
    """Source of one number."""

    def __init__(self, number: float) -> None:
        super().__init__(1)
        self.number = number

    @override
    def random(self) -> float:
        return self.number


@pytest.fixture
def faults() -> ScriptedFaults:
    shard = deletion_shard_path(5)
    return ScriptedFaults(lambda call: (call.operation, call.path) == ("children", shard))


async def record(store: MemoryMetadataStore, *ledger_ids: LedgerId) -> None:
    for ledger_id in ledger_ids:
        operation = deletion_of(ledger_id, NOW_MS)
        await store.create(operation.path, operation.value)


async def test_each_ledger_is_received_once_and_changes_are_read_together(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    received: list[LedgerId] = []
    follower = DeletionFollower(store, received.append, rng)
    follower.start()
    for ledger_id in FIVES:
        await record(store, ledger_id)
        await asyncio.sleep(0.05)
    await asyncio.sleep(2 * SHARD_INTERVAL_S)
    assert received == FIVES
    read = len(faults.times)
    assert read <= 5
    await asyncio.sleep(100 * SHARD_INTERVAL_S)
    assert len(faults.times) == read, "nothing is read while nothing changes"
    await follower.aclose()


@pytest.mark.parametrize(("number", "pause_s"), [(0.0, 0.5), (0.75, 1.25)])
async def test_the_pause_after_a_read_is_half_to_one_and_a_half_intervals(
    store: MemoryMetadataStore, faults: ScriptedFaults, number: float, pause_s: float
) -> None:
    follower = DeletionFollower(store, lambda _: None, Even(number), interval_s=1.0)
    follower.start()
    await asyncio.sleep(0.1)
    await record(store, FIVES[0])
    await asyncio.sleep(5.0)
    first, second = faults.times
    assert second - first == pytest.approx(pause_s, abs=0.01)
    await follower.aclose()


async def test_a_large_shard_is_not_listed_for_each_deletion(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    received: list[LedgerId] = []
    await record(store, *(LedgerId(5 + DELETION_SHARDS * each) for each in range(2_000)))
    follower = DeletionFollower(store, received.append, rng, interval_s=0.1)
    follower.start()
    await asyncio.sleep(0.1)
    assert len(received) == 2_000
    for number in range(2_000, 2_100):
        await record(store, LedgerId(5 + DELETION_SHARDS * number))
        await asyncio.sleep(0.1)
    await asyncio.sleep(4.0)
    assert len(received) == 2_100
    assert len(faults.times) <= 15
    await follower.aclose()


async def test_a_read_that_fails_is_repeated_after_a_pause(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random
) -> None:
    received: list[LedgerId] = []
    await record(store, FIVES[0])
    faults.refusals = 7
    follower = DeletionFollower(store, received.append, rng)
    follower.start()
    await asyncio.sleep(10.0)
    assert received == FIVES[:1]
    gaps = [later - sooner for sooner, later in pairwise(faults.times)]
    assert len(gaps) == 7
    assert gaps[0] < FIRST_PAUSE_S_MAX
    assert gaps[-1] > 10 * gaps[0]
    faults.refusals = 1
    await record(store, FIVES[1])
    await asyncio.sleep(10.0)
    assert received == FIVES[:2]
    failed, repeated = faults.times[-2:]
    assert repeated - failed < FIRST_PAUSE_S_MAX, "pauses begin again after a success"
    await follower.aclose()


async def test_nothing_is_received_or_watched_after_the_end(
    server: MemoryMetadataServer, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    store = WatchedStore(server)
    running = len(asyncio.all_tasks())
    received: list[LedgerId] = []
    follower = DeletionFollower(store, received.append, rng)
    follower.start()
    await asyncio.sleep(10.0)
    assert store.watch_count == DELETION_SHARDS
    await follower.aclose()
    assert store.watch_count == 0
    assert len(asyncio.all_tasks()) == running
    await record(other_store, FIVES[0])
    await asyncio.sleep(10.0)
    assert received == []
    await store.aclose()


async def test_a_follower_ends_with_its_store(
    server: MemoryMetadataServer, rng: random.Random
) -> None:
    store = MemoryMetadataStore(server)
    store.suspend()
    running = len(asyncio.all_tasks())
    follower = DeletionFollower(store, lambda _: None, rng)
    follower.start()
    await asyncio.sleep(0.1)
    assert len(asyncio.all_tasks()) > running
    await store.aclose()
    await asyncio.sleep(10.0)
    assert len(asyncio.all_tasks()) == running
    await follower.aclose()
