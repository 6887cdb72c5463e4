"""A bookie is probed once per period for all writers that wait for it (rules 4.6, 11.3)."""

import asyncio
from typing import TYPE_CHECKING, cast

from bookie.wire.messages import Pong
from ledger_client.bookies.connection_calls import BookieCallError, CallFailure
from ledger_client.writing.bookie_news import PROBE_PERIOD_S, RETURN_BYTES, BookieProbes
from ledger_client.writing.pacing import Slices
from metadata.ids import BookieId, LedgerId
from tests.simulation.loop import run_simulation

if TYPE_CHECKING:
    from ledger_client.bookies.pool import BookiePool

A, B = BookieId("bookie-a"), BookieId("bookie-b")
COUNT = 1_000
TIMEOUT_S = 5.0


class Bookies:
    """Pool whose bookies answer as a test says."""

    def __init__(self) -> None:
        self.up: dict[BookieId, bool] = {}
        """Bookies that answer: whether each one is writable."""
        self.pings: list[BookieId] = []
        self.unanswered = 0

    async def ping(self, bookie_id: BookieId, *, timeout_s: float) -> Pong:
        self.pings.append(bookie_id)
        await asyncio.sleep(0.01)
        if bookie_id not in self.up:
            raise BookieCallError(bookie_id, "it is down", failure=CallFailure.REFUSED)
        return Pong(writable=self.up[bookie_id], append_p99_us=0)

    def unanswered_bytes(self, bookie_id: BookieId) -> int:
        return self.unanswered


class World:
    """Probes, and the ledgers that were called."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.bookies = Bookies()
        self.called: list[int] = []
        slices = Slices(1.0, lambda: 0.0, loop.call_soon)
        self.probes = BookieProbes(cast("BookiePool", self.bookies), TIMEOUT_S, slices)

    def want(self, bookie_id: BookieId, number: int) -> None:
        self.probes.want(bookie_id, LedgerId(number), lambda: self.called.append(number))


def test_many_writers_cause_one_probe_per_period() -> None:
    async def main() -> None:
        world = World()
        for _ in range(5):  # each writer asks again
            for number in range(COUNT):
                world.want(A, number)
            await asyncio.sleep(PROBE_PERIOD_S)
        assert 4 <= len(world.bookies.pings) <= 6
        assert world.called == []
        world.bookies.up[A] = True
        await asyncio.sleep(2 * PROBE_PERIOD_S)
        assert world.called == list(range(COUNT))
        count = len(world.bookies.pings)
        await asyncio.sleep(5 * PROBE_PERIOD_S)
        assert len(world.bookies.pings) == count  # no writer waits any more
        world.want(A, 7)
        await asyncio.sleep(PROBE_PERIOD_S)
        assert world.called[COUNT:] == [7]
        await world.probes.aclose()

    run_simulation(main, 1)


def test_a_bookie_that_cannot_store_is_not_ready() -> None:
    async def main() -> None:
        world = World()
        world.bookies.up[A] = False
        world.want(A, 1)
        await asyncio.sleep(3 * PROBE_PERIOD_S)
        assert world.called == []
        world.bookies.up[A], world.bookies.unanswered = True, RETURN_BYTES
        await asyncio.sleep(3 * PROBE_PERIOD_S)
        assert world.called == []
        world.bookies.unanswered = 0
        await asyncio.sleep(2 * PROBE_PERIOD_S)
        assert world.called == [1]
        await world.probes.aclose()

    run_simulation(main, 1)


def test_bookies_are_probed_separately_and_a_closed_ledger_is_not_called() -> None:
    async def main() -> None:
        world = World()
        for number in (1, 2):
            world.want(A, number)
            world.want(B, number)
        await asyncio.sleep(PROBE_PERIOD_S)
        world.probes.cancel(LedgerId(1))
        world.bookies.up[B] = True
        await asyncio.sleep(2 * PROBE_PERIOD_S)
        assert world.called == [2]
        world.probes.cancel(LedgerId(2))
        await asyncio.sleep(2 * PROBE_PERIOD_S)
        count = len(world.bookies.pings)
        await asyncio.sleep(5 * PROBE_PERIOD_S)
        assert len(world.bookies.pings) == count
        await world.probes.aclose()

    run_simulation(main, 1)
