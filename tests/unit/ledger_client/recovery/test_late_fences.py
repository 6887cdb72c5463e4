"""Fences that are requested again after an unclean close, in virtual time (rule 11.6)."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from bookie.wire.messages import LacReply, ReadLac
from ledger_client.bookies.pool import CallFailure
from ledger_client.digest import LedgerKeys
from ledger_client.errors import ClientClosedError
from ledger_client.recovery.unclean_recovery import FENCE_FOR_S, LateFences
from metadata.ids import BookieId
from quire.server.overriding import override
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.ledger_client.ledger_world import LEDGER, LedgerWorld
from tests.support.ledger_client.memory_bookies import MemoryBookies, rng
from tests.support.sample_ledgers import open_ledger

CALL_S = 5.0
A, B = BookieId("a"), BookieId("b")


class NotedFences(MemoryBookies):
    """Bookies whose fence requests are noted."""

    def __init__(self, names: str, keys: LedgerKeys) -> None:
        super().__init__(names, keys)
        self.calls: list[tuple[BookieId, float, float]] = []
        """Bookie, time and limit of each request."""
        self.unfenced: set[BookieId] = set()
        """Bookies that answer and do not fence."""

    @override
    async def read_lac(
        self, bookie_id: BookieId, request: ReadLac, *, timeout_s: float
    ) -> LacReply:
        self.calls.append((bookie_id, asyncio.get_running_loop().time(), timeout_s))
        if bookie_id in self.unfenced:
            request = ReadLac(request.ledger_id, fence=False)
        return await super().read_lac(bookie_id, request, timeout_s=timeout_s)


class World(LedgerWorld[NotedFences]):
    """The bookies, and the late fences of one client."""

    def __init__(self) -> None:
        super().__init__(open_ledger("abc"), NotedFences)
        self.fences = LateFences(self.bookies.pool, rng(), CALL_S)

    def start(self, names: str) -> None:
        self.fences.start(self.keys, [BookieId(name) for name in names])


def run(scenario: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        world = World()
        await scenario(world)
        await world.fences.aclose()
        assert world.bookies.attached == 0

    run_simulation(main, 1, until_s=600)


def test_bookies_that_answer_are_fenced_with_one_request_each() -> None:
    async def scenario(world: World) -> None:
        world.start("ab")
        assert await world.fences.wait(LEDGER) == ()
        assert [world.bookies[name].is_fenced for name in "abc"] == [True, True, False]
        assert [bookie_id for bookie_id, _, _ in world.bookies.calls] == [A, B]
        assert simulation_loop().time() < 1.0

    run(scenario)


def test_a_bookie_that_returns_is_fenced() -> None:
    async def scenario(world: World) -> None:
        world.bookies.fail("b")
        simulation_loop().call_later(30.0, world.bookies.fail, "b", None)
        world.start("ab")
        assert await world.fences.wait(LEDGER) == ()
        assert world.bookies["b"].is_fenced
        assert 30.0 <= simulation_loop().time() <= 33.0

    run(scenario)


def test_requests_end_with_their_time() -> None:
    """Until then they are repeated, with pauses of seconds."""

    async def scenario(world: World) -> None:
        world.bookies.fail("bcdef")
        world.start("abcdef")
        assert await world.fences.wait(LEDGER) == tuple(map(BookieId, "bcdef"))
        times = [time for bookie_id, time, _ in world.bookies.calls if bookie_id == B]
        assert FENCE_FOR_S / 2 < len(times) < 2 * FENCE_FOR_S
        assert FENCE_FOR_S - 1 < max(time for _, time, _ in world.bookies.calls) < FENCE_FOR_S

    run(scenario)


def test_no_request_lasts_longer_than_a_call_or_the_time_left() -> None:
    async def scenario(world: World) -> None:
        world.bookies.fail("b", CallFailure.TIMEOUT)
        world.start("ab")
        assert await world.fences.wait(LEDGER) == (B,)
        limits = [(time, limit) for bookie_id, time, limit in world.bookies.calls if bookie_id == B]
        assert limits == [(time, min(CALL_S, FENCE_FOR_S - time)) for time, _ in limits]
        assert limits[0][1] == CALL_S
        assert limits[-1][1] < CALL_S

    run(scenario)


def test_an_answer_without_a_fence_is_not_enough() -> None:
    async def scenario(world: World) -> None:
        world.bookies.unfenced.add(A)
        simulation_loop().call_later(10.0, world.bookies.unfenced.clear)
        world.start("a")
        assert await world.fences.wait(LEDGER) == ()
        assert 10.0 <= simulation_loop().time() <= 13.0

    run(scenario)


def test_a_closed_pool_is_not_asked_again() -> None:
    async def scenario(world: World) -> None:
        world.bookies.fail("a", CallFailure.CLOSED)
        world.start("ab")
        assert await world.fences.wait(LEDGER) == (A,)
        assert len(world.bookies.calls) == 2

    run(scenario)


def test_one_ledger_has_one_round_of_requests_at_a_time() -> None:
    async def scenario(world: World) -> None:
        world.start("a")
        world.start("b")
        assert await world.fences.wait(LEDGER) == ()
        assert not world.bookies["b"].is_fenced
        world.start("b")
        assert await world.fences.wait(LEDGER) == ()
        assert world.bookies["b"].is_fenced

    run(scenario)


def test_nothing_is_waited_for_without_requests() -> None:
    async def scenario(world: World) -> None:
        assert await world.fences.wait(LEDGER) == ()
        world.start("a")
        await asyncio.sleep(1.0)
        assert await world.fences.wait(LEDGER) == ()

    run(scenario)


def test_a_caller_that_is_cancelled_ends_its_wait_alone() -> None:
    async def scenario(world: World) -> None:
        world.bookies.fail("a")
        simulation_loop().call_later(10.0, world.bookies.fail, "a", None)
        world.start("a")
        waiting = asyncio.ensure_future(world.fences.wait(LEDGER))
        await asyncio.sleep(1.0)
        waiting.cancel()
        await asyncio.wait((waiting,))
        assert waiting.cancelled()
        assert await world.fences.wait(LEDGER) == ()
        assert world.bookies["a"].is_fenced

    run(scenario)


def test_the_end_of_the_client_ends_requests_and_waits() -> None:
    async def scenario(world: World) -> None:
        world.bookies.fail("a")
        world.start("a")
        waiting = asyncio.ensure_future(world.fences.wait(LEDGER))
        await asyncio.sleep(1.0)
        await world.fences.aclose()
        with pytest.raises(ClientClosedError):
            await waiting
        count = len(world.bookies.calls)
        await asyncio.sleep(10.0)
        assert len(world.bookies.calls) == count
        assert world.bookies.attached == 0

    run(scenario)
