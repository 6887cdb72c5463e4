"""Which bookies a worker asks for the latency of their appends, and what the answers do."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, cast

from bookie.wire.messages import Pong
from ledger_client.bookies.connection_calls import BookieCallError, CallFailure
from metadata.cancelling import cancel_and_wait
from metadata.ids import BookieId
from metadata.repair.settings import DEFAULTS
from quire.repair.pacing import LOOK_EVERY_S, AppendWatch, CopyShares
from tests.simulation.loop import run_simulation
from tests.support.sample_ledgers import bookies

if TYPE_CHECKING:
    from ledger_client.bookies.pool import BookiePool

A, B, C = bookies("abc")
SETTINGS = replace(DEFAULTS, bytes_per_s=0)
MARK_US = SETTINGS.append_p99_ms_max * 1000
RATE = SETTINGS.bookie_bytes_per_s


class Bookies:
    """Pool whose bookies answer as a test says."""

    def __init__(self) -> None:
        self.p99_us: dict[BookieId, int] = {}
        """Bookies that answer."""
        self.pings: list[BookieId] = []

    async def ping(self, bookie_id: BookieId, *, timeout_s: float) -> Pong:
        self.pings.append(bookie_id)
        await asyncio.sleep(0.01)
        if bookie_id not in self.p99_us:
            raise BookieCallError(bookie_id, "it is down", failure=CallFailure.REFUSED)
        return Pong(writable=True, append_p99_us=self.p99_us[bookie_id])


def watching(scenario: Callable[[Bookies, CopyShares], Awaitable[None]]) -> None:
    async def main() -> None:
        pool, shares = Bookies(), CopyShares()
        shares.follow(SETTINGS, 1)
        watch = AppendWatch(cast("BookiePool", pool), shares)
        task = asyncio.create_task(watch.run())
        try:
            await scenario(pool, shares)
        finally:
            await cancel_and_wait(task)

    run_simulation(main, 1)


async def looks(count: int) -> None:
    await asyncio.sleep(count * LOOK_EVERY_S + 1)


def test_the_bookies_of_copies_are_asked() -> None:
    async def scenario(pool: Bookies, shares: CopyShares) -> None:
        pool.p99_us = {A: 2 * MARK_US, C: MARK_US}
        await looks(2)
        assert not pool.pings, "nothing is copied"
        with shares.copying_to(A) as to_a, shares.copying_to(B) as to_b:
            to_a.take(RATE // 100, 0.0, C)
            to_b.take(RATE // 100, 0.0, C)
            await looks(1)
            assert sorted(set(pool.pings)) == [A, B, C]
            now = asyncio.get_running_loop().time()
            to_a.take(RATE, now, C)
            assert to_a.take(RATE, now, C) == 2.0, "half of the limit of the target"
            to_b.take(RATE, now, None)
            assert to_b.take(RATE, now, None) == 1.0, "it does not answer: it is not slowed"

    watching(scenario)


def test_a_slow_bookie_is_asked_until_it_is_whole_again() -> None:
    async def scenario(pool: Bookies, shares: CopyShares) -> None:
        pool.p99_us = {A: 2 * MARK_US}
        with shares.copying_to(A) as to_a:
            to_a.take(1, 0.0, None)
            await looks(2)
        assert shares.watched == [A]
        pool.p99_us = {}
        await looks(2)
        assert shares.watched == []

    watching(scenario)
