"""Reads of topics that were answered late, while this broker stored newer records."""

import asyncio
from collections.abc import AsyncIterator
from random import Random

import pytest
from typing_extensions import override  # `typing` has it from 3.12 on

from broker_layer.control.cluster_view import TopicFollower
from metadata.ids import Version
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_server import MemoryMetadataServer
from metadata.topics.topic import TopicId, TopicRecord, new_topic
from metadata.topics.topic_store import TopicStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.until import until


def topic(name: str, number: int = 1) -> TopicRecord:
    topic_id = TopicId(bytes([number]) * 16)
    return new_topic(name, topic_id, 1_700_000_000_000, [1], {}, is_internal=False)


class LateTopics(TopicStore):
    """Topics whose answers arrive only while `gate` is set. What they say is read at once."""

    def __init__(self, store: MemoryMetadataStore) -> None:
        super().__init__(store, Random(1))
        self.gate = asyncio.Event()
        self.gate.set()
        self.waiting = 0

    async def _late(self) -> None:
        self.waiting += 1
        await self.gate.wait()
        self.waiting -= 1

    @override
    async def names(self) -> list[str]:
        found = await super().names()
        await self._late()
        return found

    @override
    async def get(self, name: str, *, fresh: bool = False) -> tuple[TopicRecord, Version]:
        try:
            return await super().get(name, fresh=fresh)
        finally:
            await self._late()


class World:
    """A follower of topics in memory, and the changes that it reported."""

    def __init__(self) -> None:
        self.faults = ScriptedFaults()
        self.server = MemoryMetadataServer(self.faults)
        self.store = MemoryMetadataStore(self.server)
        self.topics = LateTopics(self.store)
        self.others = TopicStore(self.store, Random(2))
        self.changes: list[tuple[str, bool]] = []
        self.settled = 0
        self.settled_number = 0
        self.follower = TopicFollower(
            self.topics, Random(3), on_change=self._changed, on_settled=self._settled
        )

    def _changed(self, name: str, record: TopicRecord | None) -> None:
        self.changes.append((name, record is not None))

    def _settled(self, number: int) -> None:
        self.settled += 1
        self.settled_number = number

    async def hold_answers(self) -> None:
        """Return once a read has its answer, which the follower gets after `release`."""
        self.topics.gate.clear()
        await until(lambda: self.topics.waiting > 0)

    async def release(self) -> None:
        """Let the follower get all answers, until it has nothing to read."""
        settled = self.settled
        self.topics.gate.set()
        await until(lambda: self.settled > settled)

    async def aclose(self) -> None:
        await self.follower.aclose()
        await self.store.aclose()


@pytest.fixture
async def world() -> AsyncIterator[World]:
    world = World()
    yield world
    await world.aclose()


async def test_a_listing_from_before_a_creation_removes_nothing(world: World) -> None:
    world.topics.gate.clear()
    world.follower.start()
    await world.hold_answers()
    world.follower.learn(await world.others.create(topic("orders")))
    await world.release()
    assert list(world.follower._records) == ["orders"]
    assert world.changes == [("orders", True)]


async def test_a_read_of_the_deleted_topic_does_not_remove_its_successor(world: World) -> None:
    first = await world.others.create(topic("orders"))
    world.follower.start()
    await until(lambda: "orders" in world.follower._records)
    await world.others.change("orders", lambda record: record.with_deletion())
    await until(lambda: world.follower._records["orders"].is_deleted)
    world.changes.clear()

    world.topics.gate.clear()
    await world.others.finish_deletion("orders", first.topic_id)
    await world.hold_answers()
    world.follower.learn(await world.others.create(topic("orders", 2)))
    await world.release()
    assert world.follower._records["orders"].topic_id == topic("orders", 2).topic_id
    assert ("orders", False) not in world.changes


async def test_a_topic_that_is_gone_from_a_later_listing_is_dropped(world: World) -> None:
    world.follower.start()
    await until(lambda: world.settled > 0)
    world.follower.learn(topic("orders"))  # never stored
    world.follower.reread()
    await until(lambda: not world.follower._records)
    assert world.changes == [("orders", True), ("orders", False)]


async def test_all_topics_are_read_after_the_server_has_caught_up(world: World) -> None:
    """Also if a read was under way when it was asked for: then its server may lag."""
    await world.others.create(topic("a"))
    await world.others.create(topic("b"))
    world.follower.start()
    await until(lambda: len(world.follower._records) == 2)
    world.topics.gate.clear()
    await world.others.change("b", lambda record: record.with_leaders({0: 2}))
    await world.hold_answers()

    another = MemoryMetadataStore(world.server)
    world.faults.news_s = 600.0
    await TopicStore(another, Random(4)).change("a", lambda record: record.with_leaders({0: 2}))
    world.faults.missed = 1  # a read that is not fresh does not see that
    number = world.follower.reread()
    world.topics.gate.set()
    await until(lambda: world.settled_number == number)
    assert world.follower._records["a"].partitions[0].leader == 2
    await another.aclose()
