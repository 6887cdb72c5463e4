"""Deletion feed: entries are reported at least once, and expire by time."""

import asyncio
import random

import msgpack
import pytest
from typing_extensions import override

from metadata.ids import LEDGER_ID_MAX, LedgerId
from metadata.ledgers import deletion_feed
from metadata.ledgers.deletion_feed import DeletionFeed, DeletionFollower, deletion_of
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import DELETION_SHARDS, deletion_path, deletion_shard_path
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.samples import open_ledger
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.unit.metadata.conftest import NOW_MS

FIVE = LedgerId(5)
FIVES = [LedgerId(5 + DELETION_SHARDS * number) for number in range(4)]
"""Ledgers of one shard."""


class Received:
    def __init__(self) -> None:
        self.ids: list[LedgerId] = []

    def __call__(self, ledger_id: LedgerId) -> None:
        self.ids.append(ledger_id)

    async def wait(self, count: int) -> list[LedgerId]:
        async with asyncio.timeout(20):
            while len(self.ids) < count:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        return self.ids


async def record(store: MemoryMetadataStore, ledger_id: LedgerId, now_ms: int) -> None:
    operation = deletion_of(ledger_id, now_ms)
    await store.create(operation.path, operation.value)


async def test_entries_are_sharded_by_id(store: MemoryMetadataStore) -> None:
    feed = DeletionFeed(store)
    for ledger_id in (5, 5 + 2 * DELETION_SHARDS, 6, 5 + DELETION_SHARDS):
        await record(store, LedgerId(ledger_id), NOW_MS)
    assert await feed.entries(5) == [5, 5 + DELETION_SHARDS, 5 + 2 * DELETION_SHARDS]
    assert await feed.entries(6) == [6]
    assert await feed.entries(7) == []


async def test_a_follower_receives_old_and_new_entries(
    store: MemoryMetadataStore, ledgers: LedgerStore, rng: random.Random
) -> None:
    for number in (1, 2):
        await ledgers.create(open_ledger(number))
    await ledgers.delete(LedgerId(1))
    received = Received()
    follower = DeletionFollower(store, received, rng, interval_s=0.001)
    follower.start()
    await received.wait(1)
    await ledgers.delete(LedgerId(2))
    assert await received.wait(2) == [1, 2]
    await follower.aclose()


async def test_a_follower_catches_up_after_a_suspension(
    store: MemoryMetadataStore, other_ledgers: LedgerStore, rng: random.Random
) -> None:
    received = Received()
    follower = DeletionFollower(store, received, rng, interval_s=0.001)
    follower.start()
    await other_ledgers.create(open_ledger(3))
    store.suspend()
    await other_ledgers.delete(LedgerId(3))
    await asyncio.sleep(0.01)
    assert received.ids == []
    store.resume()
    assert await received.wait(1) == [3]
    await follower.aclose()


async def test_entries_expire_by_time(store: MemoryMetadataStore) -> None:
    feed = DeletionFeed(store)
    old, recent = LedgerId(5), LedgerId(5 + DELETION_SHARDS)
    await record(store, old, NOW_MS - 10)
    await record(store, recent, NOW_MS)
    assert await feed.expire(5, NOW_MS) == 1
    assert await feed.entries(5) == [recent]


async def test_entries_that_were_just_recorded_are_returned(
    store: MemoryMetadataStore,
    other_store: MemoryMetadataStore,
    faults: ScriptedFaults,
) -> None:
    await record(other_store, FIVES[0], NOW_MS)
    await record(other_store, FIVES[1], NOW_MS)
    faults.missed = 1
    assert await DeletionFeed(store).entries(5) == FIVES[:2]


@pytest.mark.parametrize("name", ["a-name", "5a", "\N{SUPERSCRIPT FIVE}", str(LEDGER_ID_MAX + 1)])
async def test_a_node_that_is_no_ledgers_is_ignored(store: MemoryMetadataStore, name: str) -> None:
    await record(store, FIVE, NOW_MS)
    await store.create(f"{deletion_shard_path(5)}/{name}", b"of no ledger")
    feed = DeletionFeed(store)
    assert await feed.entries(5) == [FIVE]
    assert await feed.expire(5, NOW_MS + 1) == 1


async def test_the_time_of_a_deletion_is_compared_exactly(store: MemoryMetadataStore) -> None:
    feed = DeletionFeed(store)
    await record(store, FIVES[0], 0)
    await record(store, FIVES[1], NOW_MS - 1)
    await record(store, FIVES[2], NOW_MS)
    assert await feed.expire(5, NOW_MS) == 2
    assert await feed.entries(5) == FIVES[2:3]


async def test_one_call_checks_a_limited_number_of_entries(
    store: MemoryMetadataStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion_feed, "CHECKED_IDS_MAX", 2)
    feed = DeletionFeed(store)
    for ledger_id in FIVES:
        await record(store, ledger_id, NOW_MS)
    assert await feed.expire(5, NOW_MS + 1) == 2
    assert await feed.entries(5) == FIVES[2:]


class LateFeed(DeletionFeed):
    """Feed of which another process removes the first entry after it was listed."""

    @override
    async def entries(self, shard: int) -> list[LedgerId]:
        return [FIVES[0], *await super().entries(shard)]


async def test_an_entry_that_another_process_removed_stops_nothing(
    store: MemoryMetadataStore,
) -> None:
    for ledger_id in FIVES[1:]:
        await record(store, ledger_id, NOW_MS)
    assert await LateFeed(store).expire(5, NOW_MS + 1) == 3


@pytest.mark.parametrize("deleted_ms", [-1, 2**63, "now", None])
async def test_an_unreadable_entry_stays_and_stops_nothing(
    store: MemoryMetadataStore, deleted_ms: object
) -> None:
    for ledger_id in FIVES[1:]:
        await record(store, ledger_id, NOW_MS)
    await store.create(deletion_path(FIVE), msgpack.packb([1, deleted_ms]))
    feed = DeletionFeed(store)
    assert await feed.expire(5, NOW_MS + 1) == len(FIVES) - 1
    assert await feed.entries(5) == [FIVE]
