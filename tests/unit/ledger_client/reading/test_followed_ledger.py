"""A reader's view of a ledger misses no change (protocol 8.4), and its LAC is as fresh as an ack
quorum (protocol 8.1, 3.2).
"""

import asyncio
from random import Random

from ledger_client.reading.followed_ledger import FollowedLedger
from ledger_client.reading.lac_reading import read_lac
from metadata.ids import BookieId, EntryId, UpdateToken
from metadata.ledgers.ledger_store import LedgerStore
from metadata.store.memory import MemoryMetadataStore
from metadata.store.memory_faults import NoFaults, StoreCall
from serving.overriding import override
from tests.support.ledger_client.recovery_world import World, payloads, run

TOKEN = UpdateToken(b"changed by tests")


class SlowReads(NoFaults):
    """Answers reads after a second with what was stored when they arrived."""

    @override
    async def after(self, call: StoreCall) -> None:
        await asyncio.sleep(0 if call.is_write else 1.0)


def followed(world: World) -> FollowedLedger:
    ledgers = LedgerStore(MemoryMetadataStore(world.server), Random(1), lambda: 0)
    ledger = FollowedLedger(world.metadata, world.version, ledgers, Random(2))
    ledger.start()
    return ledger


async def change(world: World, first: int, names: str) -> None:
    ensemble = tuple(BookieId(name) for name in names)
    world.metadata = world.metadata.with_ensemble_change(EntryId(first), ensemble, TOKEN)
    world.version = await world.ledgers.compare_and_set(world.metadata, world.version)


def test_a_change_during_the_read_of_another_one_is_read_too() -> None:
    async def scenario(world: World) -> None:
        ledger = followed(world)
        world.server.faults = SlowReads()
        await change(world, 10, "abd")
        await asyncio.sleep(0.5)
        await change(world, 20, "abe")
        await asyncio.sleep(10)
        assert ledger.metadata == world.metadata
        assert ledger.last_confirmed == 19
        await ledger.aclose()

    run(scenario)


def test_the_lac_is_as_fresh_as_an_ack_quorum() -> None:
    """The quickest bookie lacks the newest entries: its answer alone does not cover."""

    async def scenario(world: World) -> None:
        ledger = followed(world)
        world.bookies.write(0, payloads(0, 10), lac=-1, length_before=0, to="a,b,c")
        for name, lac, delay_s in [("a", 3, 0.001), ("b", 9, 0.1), ("c", 9, 5.0)]:
            world.bookies[name].advance(lac)
            world.bookies[name].delay_s = delay_s
        began = asyncio.get_running_loop().time()
        await read_lac(ledger, world.bookies.pool, 10.0)
        assert ledger.last_confirmed == 9
        assert asyncio.get_running_loop().time() - began < 1
        await ledger.aclose()

    run(scenario)
