"""A bookie that is away in a simulated cluster: the summary says since when."""

import asyncio
import random

from metadata.repair.status_store import StatusStore
from quire.repair.auditor import STATUS_AGE_MS_MAX
from tests.support.repair.repair_world import World, play

NOTICED_S_MAX = STATUS_AGE_MS_MAX / 1000 + 10


def test_a_bookie_is_away_until_it_returns() -> None:
    async def story(world: World) -> None:
        await world.write(1)
        bookie_id = world.ledgers()[0].fragments[0].ensemble[0]
        bookie = world.bookie(bookie_id)
        summaries = StatusStore(world.store, random.Random("summaries"))
        world.stop_in_order(bookie_id)
        assert await world.wait(lambda: not bookie.is_serving)
        left_ms = world.repairers[0].wall_clock_ms()
        await asyncio.sleep(NOTICED_S_MAX)
        status = await summaries.get()
        assert status is not None
        (away,) = status.away
        assert away.bookie_id == bookie_id
        assert abs(away.since_ms - left_ms) < 10_000
        bookie.is_wanted = True
        bookie.start()
        assert await world.wait(lambda: bookie.is_serving)
        await asyncio.sleep(NOTICED_S_MAX)
        status = await summaries.get()
        assert status is not None
        assert status.away == ()

    play(story, lost_after_s=600)
