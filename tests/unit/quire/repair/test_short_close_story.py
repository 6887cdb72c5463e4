"""A ledger that closes with fewer members than it wants, while no bookie is gone for long."""

import asyncio

from ledger_client import Quorum
from metadata.ledgers.ledger_metadata import LedgerState
from quire.repair.auditor import CATCH_UP_EVERY_S
from tests.support.repair.repair_world import World, play
from tests.support.repair.replicas import check_whole, end, start_again

FIRST_PASS_S = 30.0
SOON_S = 20.0
IN_SYNC = Quorum.in_sync(3, min_in_sync=2)


def test_a_ledger_that_closed_with_fewer_members_gets_the_others_within_a_minute() -> None:
    async def story(world: World) -> None:
        assert world.client is not None
        await asyncio.sleep(FIRST_PASS_S)
        writer = await world.client.create_ledger(IN_SYNC)
        await writer.append(b"first")
        away = world.ledger(writer.id).fragments[0].ensemble[0]
        await asyncio.sleep(CATCH_UP_EVERY_S)  # the auditor knows the ledger, open and whole
        end(world, away)
        for number in range(20):
            await writer.append(b"%d" % number)
        await writer.aclose()
        ledger = world.ledger(writer.id)
        assert ledger.state is LedgerState.CLOSED
        assert len(ledger.last_fragment.ensemble) == 2
        start_again(world, away)

        def is_whole() -> bool:
            return all(
                len(fragment.ensemble) == 3 for fragment in world.ledger(writer.id).fragments
            )

        assert await world.wait(is_whole, CATCH_UP_EVERY_S + SOON_S)
        check_whole(world, writer.id)

    play(story, bookies=3, lost_after_s=600, urgent_after_s=600)
