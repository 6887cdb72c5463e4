"""The timer shared by a client's writers keeps running (rules 4.6, 5.7)."""

import asyncio
from collections.abc import Callable
from random import Random

from ledger_client.bookies.pool import BookiePool
from ledger_client.bookies.pool_link import BookieAddress
from ledger_client.config import ClientConfig
from ledger_client.observability import Observer
from ledger_client.writing.pacing import Slices
from ledger_client.writing.watchdog import WATCH_PERIOD_S, Watchdog
from metadata.ids import BookieId, LedgerId
from tests.simulation.loop import run_simulation

COUNT = 1_000
CHECKS_PER_SLICE = 50


class Nowhere:
    """Pool without bookies."""

    async def address_of(self, bookie_id: BookieId, *, fresh: bool) -> BookieAddress | None:
        return None


class Writer:
    """Writer that is done at its tenth check, or raises at each one. It asks for a check every
    `pause_s`.
    """

    def __init__(self, ledger_id: int, *, fails: bool = False, pause_s: float = 0.0) -> None:
        self.ledger_id = LedgerId(ledger_id)
        self.fails = fails
        self.pause_s = pause_s
        self.checked_at: list[float] = []
        self.done = asyncio.Event()

    def check(self, now: float) -> float | None:
        self.checked_at.append(now)
        if self.fails:
            raise RuntimeError("a writer's own trouble")
        if len(self.checked_at) == 10:
            self.done.set()
            return None
        return now + self.pause_s

    def may_suspect(self, bookie_id: BookieId, *, is_late: bool) -> bool:
        return False

    def suspect(self, bookie_id: BookieId, silent_s: float) -> None:
        raise AssertionError("nothing is silent here")


class World:
    """Watchdog of which each slice makes CHECKS_PER_SLICE calls."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        config = ClientConfig()
        self.slice_count = 0
        self._ticks = 0
        self.pool = BookiePool(Nowhere(), config=config, rng=Random(1))

        def call_soon(run: Callable[[], None]) -> None:
            self.slice_count += 1
            loop.call_soon(run)

        slices = Slices(CHECKS_PER_SLICE - 0.5, self._tick, call_soon)
        self.watchdog = Watchdog(self.pool, config, Observer(), slices)

    def _tick(self) -> float:
        self._ticks += 1
        return self._ticks

    async def aclose(self) -> None:
        self.watchdog.close()
        await self.pool.aclose()


async def test_an_error_of_one_writer_does_not_stop_the_watch_of_others() -> None:
    errors: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: errors.append(context.get("exception")))
    world = World()
    bad, good = Writer(1, fails=True), Writer(2)
    world.watchdog.activate(bad, 0.0)
    world.watchdog.activate(good, 0.0)
    async with asyncio.timeout(100 * WATCH_PERIOD_S):
        await good.done.wait()
    assert len(good.checked_at) == 10
    assert [type(error) for error in errors] == [RuntimeError] * len(bad.checked_at)
    assert len(bad.checked_at) >= 9, "the last round may not have reached it"
    await world.aclose()


def test_a_writer_is_checked_when_it_is_due_and_no_sooner() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        world = World()
        writer = Writer(1, pause_s=1.0)
        world.watchdog.activate(writer, loop.time() + 0.5)
        begun_s = loop.time()
        await asyncio.sleep(0.4)
        assert writer.checked_at == []
        world.watchdog.activate(writer, loop.time() + 10.0)  # the earlier time counts
        await asyncio.sleep(5.0)
        gaps = [at - begun_s for at in writer.checked_at]
        wanted = [0.5, 1.5, 2.5, 3.5, 4.5]
        assert len(gaps) == len(wanted)
        late = [gap - due for gap, due in zip(gaps, wanted, strict=True)]
        assert min(late) >= 0.0
        assert max(late) <= len(wanted) * WATCH_PERIOD_S
        world.watchdog.activate(writer, 0.0)  # an earlier check does not move the later ones
        await asyncio.sleep(0.2)
        assert len(writer.checked_at) == 6
        await world.aclose()

    run_simulation(main, 1)


def test_many_checks_leave_the_loop_time_for_others() -> None:
    async def main() -> list[Writer]:
        world = World()
        writers = [Writer(number, pause_s=100.0) for number in range(COUNT)]
        for writer in writers:
            world.watchdog.activate(writer, 0.0)
        await asyncio.sleep(2 * WATCH_PERIOD_S)
        assert COUNT / CHECKS_PER_SLICE <= world.slice_count <= COUNT / CHECKS_PER_SLICE + 4
        await world.aclose()
        return writers

    writers = run_simulation(main, 1)
    assert all(len(writer.checked_at) == 1 for writer in writers)
