"""What may happen between the mark of a copy and its swap, in a simulated cluster (9.1, 9.8).

Every part is the production code, on simulated disks, networks and metadata. A copy is halted right
before one of its actions while something else happens.
"""

import asyncio
import random
from dataclasses import replace

import pytest

from ledger_client import LedgerClient
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import Fragment, LedgerState
from metadata.repair.job_store import JobStore
from metadata.repair.lifecycle import Lifecycle
from tests.simulation.nodes import ClientNode
from tests.support.repair.copy_actions import ACTIONS, Halt, at_each_action
from tests.support.repair.repair_world import LONG_S, PLAN, THREE, Story, World, play, play_plan
from tests.support.repair.replicas import check_whole, end, lacks, read_from_one, start_again

COLLECTED_S = 4.0
"""Time in which each bookie makes several full passes of its collector."""
COLLECTING = replace(
    PLAN,
    bookie_count=6,
    options=replace(PLAN.options, collect_interval_s=1.0, collect_reads_per_s=10_000),
)
MARKED = ACTIONS[1:]
"""Actions before which the target is marked, or a member."""


def play_halted(story: Story, halt: Halt, *, bookies: int = 6, repairers: int = 1) -> None:
    """Run a story with more spare bookies than it needs, so that the choice of a target matters."""
    with at_each_action(halt.at):
        play(story, bookies=bookies, repairers=repairers)


async def lose_one(world: World) -> tuple[int, str]:
    """Write a ledger, and end a member of it; return both."""
    (ledger_id,) = await world.write(1)
    gone = world.ledger(ledger_id).fragments[0].ensemble[0]
    end(world, gone)
    return ledger_id, gone


async def wait_without_jobs(world: World) -> None:
    jobs = JobStore(world.store, world.rng)
    async with asyncio.timeout(LONG_S):
        while await jobs.published():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)


def new_member(before: Fragment, after: Fragment) -> str:
    (member,) = set(after.ensemble) - set(before.ensemble)
    return member


def target_of(world: World, ledger_id: int, gone: str, before: Fragment) -> str:
    """Return the target of the copy that is halted: it is marked, or a member already."""
    now = world.ledger(ledger_id).fragments[0]
    return new_member(before, now) if gone not in now.ensemble else now.incoming[0]


@pytest.mark.parametrize("repairers", [1, 2], ids=["the same process", "another process"])
@pytest.mark.parametrize("action", ACTIONS)
def test_a_copy_is_continued_after_a_kill_before_each_action(action: str, repairers: int) -> None:
    halt = Halt(action)

    async def story(world: World) -> None:
        ledger_id, gone = await lose_one(world)
        before = world.ledger(ledger_id).fragments[0]
        await halt.reached.wait()
        marked = world.ledger(ledger_id).fragments[0].incoming
        assert len(marked) == (action not in (ACTIONS[0], "end"))
        process = halt.process(world)
        process.is_wanted = False
        process.kill(power_off=True)
        if repairers == 1:
            await asyncio.sleep(5)
            assert world.ledger(ledger_id).fragments[0].incoming == marked
            process.is_wanted = True
            process.start()
        assert await world.wait(lambda: not world.is_named(gone))
        await wait_without_jobs(world)
        check_whole(world, ledger_id)
        after = world.ledger(ledger_id).fragments[0]
        assert set(marked) <= set(after.ensemble), "the marked target is used again"
        await read_from_one(world, ledger_id, new_member(before, after))

    play_halted(story, halt, repairers=repairers)


@pytest.mark.parametrize("action", ACTIONS)
def test_two_workers_copy_one_ledger(action: str) -> None:
    """The first one is paused until its claim has ended, and continues after the second one."""
    halt = Halt(action)

    async def story(world: World) -> None:
        ledger_id, gone = await lose_one(world)
        before = world.ledger(ledger_id).fragments[0]
        await halt.reached.wait()
        first = halt.process(world)
        assert first.store is not None
        first.pause()
        first.store.expire()
        assert await world.wait(lambda: not world.is_named(gone))
        await wait_without_jobs(world)
        first.resume()
        halt.released.set()
        await asyncio.sleep(60)
        check_whole(world, ledger_id)
        after = world.ledger(ledger_id).fragments[0]
        await read_from_one(world, ledger_id, new_member(before, after))

    play_halted(story, halt, repairers=2)


@pytest.mark.parametrize("is_expired", [False, True], ids=["suspended", "expired"])
@pytest.mark.parametrize("action", MARKED)
def test_a_worker_that_loses_the_metadata_service_ends_its_copy_later(
    action: str, *, is_expired: bool
) -> None:
    halt = Halt(action)

    async def story(world: World) -> None:
        ledger_id, gone = await lose_one(world)
        await halt.reached.wait()
        store = halt.process(world).store
        assert store is not None
        if is_expired:
            store.expire()
        else:
            store.suspend()
        halt.released.set()
        await asyncio.sleep(3)
        store.resume()
        assert await world.wait(lambda: not world.is_named(gone))
        await wait_without_jobs(world)
        check_whole(world, ledger_id)

    play_halted(story, halt)


@pytest.mark.parametrize("action", MARKED)
def test_a_target_that_is_gone_before_the_swap_is_replaced(action: str) -> None:
    halt = Halt(action)

    async def story(world: World) -> None:
        ledger_id, gone = await lose_one(world)
        before = world.ledger(ledger_id).fragments[0]
        await halt.reached.wait()
        target = target_of(world, ledger_id, gone, before)
        end(world, target)
        halt.released.set()
        assert await world.wait(lambda: not world.is_named(gone) and not world.is_named(target))
        await wait_without_jobs(world)
        check_whole(world, ledger_id)
        after = world.ledger(ledger_id).fragments[0]
        await read_from_one(world, ledger_id, new_member(before, after))

    play_halted(story, halt)


def test_when_the_source_returns_only_copies_under_way_are_finished() -> None:
    halt = Halt("store", is_for_all=True)

    async def story(world: World) -> None:
        ids = await world.write(20)
        before = {each: world.ledger(each) for each in ids}
        gone = before[ids[0]].fragments[0].ensemble[0]
        end(world, gone)
        await halt.reached.wait()
        await asyncio.sleep(5)
        begun = [each for each in ids if world.ledger(each) != before[each]]
        others = [each for each in ids if before[each].names(gone) and each not in begun]
        assert begun
        assert others
        start_again(world, gone)
        await world.wait_for_state(gone, Lifecycle.ACTIVE)
        halt.released.set()
        assert await world.wait(lambda: not any(world.ledger(each).names(gone) for each in begun))
        await wait_without_jobs(world)
        await asyncio.sleep(60)
        assert [world.ledger(other) for other in others] == [before[other] for other in others]
        for each in ids:
            check_whole(world, each)
        await world.read(ids)

    play_halted(story, halt)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_ledger_that_is_deleted_during_its_copy_stays_deleted(action: str) -> None:
    halt = Halt(action)

    async def story(world: World) -> None:
        ledger_id, _ = await lose_one(world)
        (other_id,) = await world.write(1)
        await halt.reached.wait()
        assert world.client is not None
        await world.client.delete_ledger(ledger_id)
        halt.released.set()
        await wait_without_jobs(world)
        await asyncio.sleep(60)
        assert world.cluster.model.ledger(LedgerId(ledger_id)).metadata is None
        check_whole(world, other_id)

    play_halted(story, halt)


def test_collectors_between_all_actions_leave_the_copy() -> None:
    """A target would drop a copy that the metadata does not announce (rule 10.1)."""
    actions: list[str] = []

    async def wait(action: str) -> None:
        actions.append(action)
        await asyncio.sleep(COLLECTED_S)

    async def story(world: World) -> None:
        ledger_id, gone = await lose_one(world)
        before = world.ledger(ledger_id).fragments[0]
        assert await world.wait(lambda: not world.is_named(gone))
        await wait_without_jobs(world)
        assert tuple(actions) == ACTIONS, "one copy was enough"
        check_whole(world, ledger_id)
        after = world.ledger(ledger_id).fragments[0]
        await read_from_one(world, ledger_id, new_member(before, after))

    with at_each_action(wait):
        play_plan(story, COLLECTING, 1, 1, {"lost_after_s": 30, "urgent_after_s": 10})


async def abandon_with_two_fragments(world: World) -> tuple[int, str]:
    """Write a ledger by a client that loses a member and then ends itself; return both."""
    ids: list[int] = []
    has_lost, has_written = asyncio.Event(), asyncio.Event()

    async def write(_: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
        writer = await client.create_ledger(THREE)
        await writer.append_many([b"%d of 0" % number for number in range(10)])
        await writer.wait_fully_replicated(9)
        ids.append(writer.id)
        await has_lost.wait()
        await writer.append_many([b"%d of 0" % number for number in range(10, 20)])
        await writer.wait_fully_replicated(19)
        has_written.set()
        await asyncio.Event().wait()

    other = ClientNode(world.cluster, "other", write)
    other.start()
    assert await world.wait(lambda: bool(ids))
    gone = world.ledger(ids[0]).last_fragment.ensemble[0]
    end(world, gone)
    has_lost.set()
    async with asyncio.timeout(LONG_S):
        await has_written.wait()
    other.is_wanted = False
    other.kill(power_off=True)
    assert len(world.ledger(ids[0]).fragments) == 2
    return ids[0], gone


@pytest.mark.parametrize("action", ACTIONS)
def test_a_recovery_during_a_copy_of_the_same_ledger(action: str) -> None:
    """The first fragment of an open ledger is copied while a client recovers and closes it."""
    halt = Halt(action)

    async def story(world: World) -> None:
        ledger_id, gone = await abandon_with_two_fragments(world)
        await halt.reached.wait()
        assert world.ledger(ledger_id).state is LedgerState.OPEN
        assert world.client is not None
        info = await world.client.recover_ledger(ledger_id)
        assert info.last_entry_id == 19
        halt.released.set()
        assert await world.wait(lambda: not world.is_named(gone))
        await wait_without_jobs(world)
        assert world.ledger(ledger_id).last_entry_id == 19
        check_whole(world, ledger_id)
        await world.read([ledger_id])

    play_halted(story, halt)


@pytest.mark.parametrize("seed", range(4))
def test_a_client_and_repair_recover_one_ledger_at_the_same_time(seed: int) -> None:
    async def story(world: World) -> None:
        ledger_id, gone = await abandon_with_two_fragments(world)
        also_gone = world.ledger(ledger_id).last_fragment.ensemble[1]
        end(world, also_gone)
        has_begun = lambda: world.ledger(ledger_id).state is not LedgerState.OPEN  # noqa: E731
        assert await world.wait(has_begun)
        await asyncio.sleep(0.01 * world.rng.random())
        assert world.client is not None
        info = await world.client.recover_ledger(ledger_id)
        assert info.last_entry_id == 19
        assert await world.wait(lambda: not world.is_named(gone) and not world.is_named(also_gone))
        assert await world.wait(lambda: not lacks(world, world.ledger(ledger_id)), 700.0)
        assert world.ledger(ledger_id).last_entry_id == 19
        await world.read([ledger_id])

    play(story, bookies=6, seed=seed)
