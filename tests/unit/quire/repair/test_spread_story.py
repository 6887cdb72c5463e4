"""Copies that share a machine move to another one when there is one again (rule 9.17)."""

import asyncio
from dataclasses import replace

from metadata.ids import BookieId, UpdateToken
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.repair.lifecycle import Lifecycle
from tests.simulation.nodes import BookieNode
from tests.simulation.store import LedgerNews
from tests.support.repair.repair_world import PLAN, THREE, World, play_plan

TWO_PER_HOST = replace(PLAN, bookie_count=6, bookies_per_host=2)
SETTLED_S = 120.0


def machines_of(world: World, ledger_id: int) -> set[str]:
    """Return the machines that hold the copies of a ledger of one fragment."""
    (fragment,) = world.ledger(ledger_id).fragments
    return {world.bookie(bookie).machine for bookie in fragment.ensemble}


async def lose_a_machine(world: World) -> None:
    for number in (4, 5):
        node = world.cluster.bookies[number]
        node.is_wanted = False
        node.kill(power_off=True)
        assert node.bookie_id is not None
        await world.wait_for_state(node.bookie_id, Lifecycle.LOST)
    gone = [str(bookie.bookie_id) for bookie in world.cluster.bookies[4:6]]
    assert await world.wait(lambda: not any(map(world.is_named, gone)))


def join(world: World) -> None:
    newcomer = BookieNode(world.cluster, 9)
    world.cluster.bookies.append(newcomer)
    newcomer.start()


def test_copies_move_to_the_machine_that_replaces_a_lost_one() -> None:
    async def story(world: World) -> None:
        ids = await world.write(6)
        assert all(len(machines_of(world, each)) == 3 for each in ids)
        await lose_a_machine(world)
        assert all(len(machines_of(world, each)) == 2 for each in ids)
        join(world)
        assert await world.wait(lambda: all(len(machines_of(world, each)) == 3 for each in ids))
        await world.read(ids)
        stored = [world.ledger(each).fragments for each in ids]
        await asyncio.sleep(SETTLED_S)
        assert [world.ledger(each).fragments for each in ids] == stored, "it has ended"

    play_plan(story, TWO_PER_HOST, 1, 1, {})


def test_a_marked_bookie_in_no_better_place_is_no_target_of_a_move() -> None:
    """A worker that died has marked the one bookie left on the two machines."""

    async def story(world: World) -> None:
        (ledger_id,) = ids = await world.write(1)
        await lose_a_machine(world)
        (fragment,) = world.ledger(ledger_id).fragments
        (marked,) = (
            BookieId(str(bookie.bookie_id))
            for bookie in world.cluster.bookies[:4]
            if bookie.bookie_id not in fragment.ensemble
        )
        ledgers = LedgerStore(world.store, world.rng, lambda: 5)
        ledger, version = await ledgers.get(world.ledger(ledger_id).ledger_id, fresh=True)
        token = UpdateToken(world.rng.randbytes(16))
        changed = ledger.with_fragment(0, replace(fragment, incoming=(marked,)), token)
        await ledgers.compare_and_set(changed, version)
        members: list[tuple[BookieId, ...]] = []

        def note(_: LedgerMetadata | None, now: LedgerMetadata | None) -> None:
            assert now is not None
            members.append(now.fragments[0].ensemble)

        LedgerNews(world.cluster.metadata, note)
        join(world)
        assert await world.wait(lambda: len(machines_of(world, ledger_id)) == 3)
        assert await world.wait(lambda: not world.ledger(ledger_id).fragments[0].incoming)
        assert not [member for member in members if marked in member]
        await world.read(ids)

    play_plan(story, TWO_PER_HOST, 1, 1, {})


def test_moves_can_be_turned_off() -> None:
    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1, THREE)
        await lose_a_machine(world)
        join(world)
        await asyncio.sleep(SETTLED_S)
        assert len(machines_of(world, ledger_id)) == 2

    play_plan(story, TWO_PER_HOST, 1, 1, {"move_misplaced": 0})


def test_an_absent_machine_moves_nothing() -> None:
    async def story(world: World) -> None:
        ids = await world.write(4)
        stored = [world.ledger(each).fragments for each in ids]
        join(world)
        for node in world.cluster.bookies[4:6]:
            node.is_wanted = False
            node.kill(power_off=True)
        await asyncio.sleep(SETTLED_S)
        assert [world.ledger(each).fragments for each in ids] == stored

    play_plan(story, TWO_PER_HOST, 1, 1, {"lost_after_s": 3_000, "urgent_after_s": 3_000})
