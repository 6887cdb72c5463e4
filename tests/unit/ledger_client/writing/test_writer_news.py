"""Each writer learns of departed bookies and spares, in slices (rule 5.6)."""

import asyncio
import socket
from random import Random

import pytest

from bookie.wire.messages import ReadLac
from ledger_client.bookies.pool import BookieCallError, BookiePool
from ledger_client.bookies.pool_link import AddressLookup, BookieAddress
from ledger_client.config import ClientConfig
from ledger_client.writing.bookie_news import WriterNews
from ledger_client.writing.pacing import Slices
from metadata.ids import BookieId, LedgerId
from metadata.registry.registration import DRAINING_FEATURE, BookieRegistration

A, B, C = (BookieId(name) for name in ("bookie-a", "bookie-b", "bookie-c"))
COUNT = 100
CALLS_PER_SLICE = 10


class Nowhere:
    """Pool without bookies."""

    async def address_of(self, bookie_id: BookieId, *, fresh: bool) -> BookieAddress | None:
        return None


def registration(bookie_id: BookieId, *, drains: bool = False) -> BookieRegistration:
    features = (DRAINING_FEATURE,) if drains else ()
    return BookieRegistration(bookie_id, "host", 1, features=features)


class Writer:
    """Writer that keeps the news."""

    def __init__(self, *members: BookieId) -> None:
        self.members = members
        self.departed: list[BookieId] = []
        self.spare_count = 0

    def note_departed(self, bookie_id: BookieId, reason: str) -> None:
        self.departed.append(bookie_id)

    def spare_joined(self) -> None:
        self.spare_count += 1


class Unreachable:
    """Pool whose bookies have an address where nothing listens."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def address_of(self, bookie_id: BookieId, *, fresh: bool) -> BookieAddress | None:
        return BookieAddress("127.0.0.1", self._port, is_tls=False, offers_tls=False)


class World:
    """News of COUNT writers with members A and B, and of one with B and C."""

    def __init__(self, addresses: AddressLookup | None = None) -> None:
        loop = asyncio.get_running_loop()
        self.registered = {bookie: registration(bookie) for bookie in (A, B, C)}
        self.ticks = 0
        slices = Slices(CALLS_PER_SLICE, self._tick, loop.call_soon)
        self.pool = BookiePool(addresses or Nowhere(), config=ClientConfig(), rng=Random(1))
        self.news = WriterNews(self.pool, slices, self.registered)
        self.writers = [Writer(A, B) for _ in range(COUNT)]
        self.other = Writer(B, C)
        for writer in (*self.writers, self.other):
            self.news.join(writer)

    def _tick(self) -> float:
        self.ticks += 1
        return self.ticks

    def lose(self, bookie_id: BookieId) -> None:
        self.registered.pop(bookie_id)
        self.pool.note_departed(bookie_id)

    async def settle(self) -> None:
        for _ in range(5 * COUNT // CALLS_PER_SLICE):
            await asyncio.sleep(0)


async def test_a_departure_is_told_in_slices_to_the_writers_with_that_member() -> None:
    world = World()
    world.lose(A)
    assert not any(writer.departed for writer in world.writers)
    for _ in range(3):
        await asyncio.sleep(0)
    told = sum(bool(writer.departed) for writer in world.writers)
    assert 0 < told <= 3 * (CALLS_PER_SLICE + 1)
    await world.settle()
    assert all(writer.departed == [A] for writer in world.writers)
    assert world.other.departed == []


async def test_no_writer_is_told_that_a_bookie_departed_which_is_back() -> None:
    world = World()
    world.lose(A)
    for _ in range(3):
        await asyncio.sleep(0)
    world.registered[A] = registration(A)
    told = sum(bool(writer.departed) for writer in world.writers)
    await world.settle()
    assert 0 < told < COUNT
    assert sum(bool(writer.departed) for writer in world.writers) == told


async def test_news_during_a_round_are_told_to_all_once_more() -> None:
    world = World()
    world.lose(A)
    for _ in range(3):
        await asyncio.sleep(0)
    for _ in range(10):
        world.pool.note_departed(A)
        world.news.spare_joined()
    await world.settle()
    await world.settle()
    assert all(writer.departed == [A, A] for writer in world.writers)
    assert {writer.spare_count for writer in world.writers} == {1}  # told before it began


async def test_departed_members_are_reported_again_when_a_spare_joins() -> None:
    world = World()
    world.lose(C)
    await world.settle()
    world.news.remind_of_departed()
    await world.settle()
    assert world.other.departed == [C, C]
    assert not any(writer.departed for writer in world.writers)


async def test_a_writer_that_left_is_told_nothing() -> None:
    world = World()
    world.lose(A)
    world.news.leave(world.writers[-1])
    await world.settle()
    assert world.writers[-1].departed == []
    assert world.writers[0].departed == [A]


async def test_members_that_drain_are_told_to_their_writers_and_again_when_a_spare_joins() -> None:
    world = World()
    world.registered[A] = registration(A, drains=True)
    world.news.note_drains(A)
    await asyncio.sleep(0.05)
    assert [writer.departed for writer in world.writers] == [[A]] * COUNT
    assert world.other.departed == []
    world.news.remind_of_departed()
    await asyncio.sleep(0.05)
    assert [writer.departed for writer in world.writers] == [[A, A]] * COUNT
    world.registered[A] = registration(A)
    world.news.remind_of_departed()
    await asyncio.sleep(0.05)
    assert [writer.departed for writer in world.writers] == [[A, A]] * COUNT


async def test_a_writer_that_leaves_during_a_round_is_told_nothing() -> None:
    world = World()
    world.lose(A)
    for _ in range(3):
        await asyncio.sleep(0)
    world.news.leave(world.writers[-1])
    await world.settle()
    assert world.writers[-1].departed == []
    assert world.writers[-2].departed == [A]


async def test_no_writer_is_told_that_a_bookie_drains_which_no_longer_does() -> None:
    world = World()
    world.registered[A] = registration(A, drains=True)
    world.news.note_drains(A)
    for _ in range(3):
        await asyncio.sleep(0)
    world.registered[A] = registration(A)
    told = sum(bool(writer.departed) for writer in world.writers)
    await world.settle()
    assert 0 < told < COUNT
    assert sum(bool(writer.departed) for writer in world.writers) == told


async def test_no_round_is_made_while_every_member_is_there() -> None:
    world = World()
    world.news.remind_of_departed()
    await world.settle()
    assert world.ticks == 0


async def test_a_bookie_that_is_not_registered_does_not_drain() -> None:
    world = World()
    assert not world.news.drains(BookieId("unknown"))
    world.registered[A] = registration(A, drains=True)
    assert world.news.drains(A)
    assert not world.news.drains(B)


async def test_a_lost_connection_is_no_departure() -> None:
    """Failed adds show it; the news of the departure come with the registration (5.6)."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        world = World(Unreachable(bound.getsockname()[1]))
        world.registered.pop(A)
        with pytest.raises(BookieCallError):
            await world.pool.read_lac(A, ReadLac(LedgerId(7), fence=False), timeout_s=10.0)
        await world.settle()
        assert not any(writer.departed for writer in world.writers)
        await world.pool.aclose()
