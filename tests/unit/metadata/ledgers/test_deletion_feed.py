"""Deletion feed: entries are reported at least once, and expire by time."""

import asyncio
import random

from metadata.ids import LedgerId
from metadata.ledgers.deletion_feed import DeletionFeed, DeletionFollower, deletion_of
from metadata.ledgers.ledger_store import LedgerStore
from metadata.paths import DELETION_SHARDS
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.samples import open_ledger
from tests.unit.metadata.conftest import NOW_MS


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
