"""When members of an in-sync ledger leave, come back and are replaced, in virtual time (rules 11.2
and 11.3).
"""

import asyncio

from tests.support.ledger_client.writer_world import World, run


def test_a_member_that_is_back_catches_up() -> None:
    async def scenario(world: World) -> None:
        world.append(5)
        await asyncio.sleep(1.0)
        await world.lose("c")
        assert (world.ensemble, world.in_sync, world.lac) == ("ab", "ab", 5)
        await world.check_for(5.0)
        assert (world.ensemble, world.in_sync) == ("ab", "ab")
        world.fail("c", None)
        await world.check_until(lambda: world.in_sync == "abc", 70.0)
        assert world.held("c") == list(range(6))

    run(scenario)
