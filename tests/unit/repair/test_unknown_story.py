"""Bookies without a cookie that ledgers name, and bookies that were formatted and never started."""

import asyncio
from random import Random

from metadata.ids import BookieId
from metadata.registry.cookies import CookieRecord, CookieStore
from metadata.repair.lifecycle import Lifecycle
from repair.unnamed_bookies import NEVER_STARTED_AFTER_MS
from tests.support.repair.repair_world import World, play
from tests.support.repair.replicas import check_whole, end

PASS_S = 700.0
"""Somewhat more than the time between two passes of the auditor."""


async def format_only(world: World, bookie_id: str, *, age_ms: int) -> BookieId:
    """Create the cookie of a bookie that was formatted some time ago."""
    created_ms = world.repairers[0].wall_clock_ms() - age_ms
    record = CookieRecord(BookieId(bookie_id), Random(bookie_id).randbytes(16), created_ms, 3, b"h")
    await CookieStore(world.store).create(record)
    return record.bookie_id


def test_a_named_bookie_without_a_cookie_counts_as_lost() -> None:
    """An operator deleted the node, or restored old metadata: its ledgers must not wait for it."""

    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        gone_id = world.ledger(ledger_id).fragments[0].ensemble[0]
        end(world, gone_id)
        cookies = CookieStore(world.store)
        _, version = await cookies.get(gone_id)
        await cookies.delete(gone_id, version)
        await world.wait_for_state(gone_id, Lifecycle.LOST)
        assert await world.wait(lambda: not world.is_named(gone_id))
        check_whole(world, ledger_id)

    play(story)


def test_a_bookie_that_never_started_is_removed_a_day_after_its_format() -> None:
    async def story(world: World) -> None:
        old = await format_only(world, "bookie-ghost", age_ms=NEVER_STARTED_AFTER_MS)
        young = await format_only(world, "bookie-young", age_ms=1000)
        started = await format_only(world, "bookie-old", age_ms=NEVER_STARTED_AFTER_MS)
        cookies = CookieStore(world.store)
        await cookies.compare_and_set(*await cookies.get(started))  # a start counts in this way
        await world.wait_for_state(old, Lifecycle.REMOVED)
        await asyncio.sleep(PASS_S)
        states = [await world.state_of(each) for each in (young, started)]
        assert states == [Lifecycle.LOST, Lifecycle.LOST]

    play(story)
