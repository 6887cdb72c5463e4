"""The timer shared by a client's writers keeps running (rules 4.6, 5.7)."""

import asyncio
from random import Random

from ledger_client.bookies.pool import BookiePool
from ledger_client.bookies.pool_link import BookieAddress
from ledger_client.config import ClientConfig
from ledger_client.observability import Observer
from ledger_client.writing.watchdog import WATCH_PERIOD_S, Watchdog
from metadata.ids import BookieId, LedgerId


class Nowhere:
    """Pool without bookies."""

    async def address_of(self, bookie_id: BookieId, *, fresh: bool) -> BookieAddress | None:
        return None


class Writer:
    """Writer that is done at its tenth check, or raises at each one."""

    def __init__(self, ledger_id: int, *, fails: bool) -> None:
        self.ledger_id = LedgerId(ledger_id)
        self.fails = fails
        self.looks = 0
        self.check_due_at = 0.0
        self.done = asyncio.Event()

    def check(self, now: float) -> bool:
        self.looks += 1
        if self.fails:
            raise RuntimeError("a writer's own trouble")
        if self.looks == 10:
            self.done.set()
        return self.looks < 10

    def may_suspect(self, bookie_id: BookieId) -> bool:
        return False

    def suspect(self, bookie_id: BookieId, silent_s: float) -> None:
        raise AssertionError("nothing is silent here")


async def test_an_error_of_one_writer_does_not_stop_the_watch_of_others() -> None:
    errors: list[object] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: errors.append(context.get("exception")))
    config = ClientConfig()
    pool = BookiePool(Nowhere(), config=config, rng=Random(1))
    watchdog = Watchdog(pool, config, Observer())
    bad, good = Writer(1, fails=True), Writer(2, fails=False)
    watchdog.activate(bad)
    watchdog.activate(good)
    async with asyncio.timeout(100 * WATCH_PERIOD_S):
        await good.done.wait()
    assert good.looks == 10
    assert [type(error) for error in errors] == [RuntimeError] * bad.looks
    assert bad.looks >= 10
    watchdog.close()
    await pool.aclose()
