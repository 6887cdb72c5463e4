"""A bookie that starts on an old copy of its disk: its copies are moved, and it never serves an old
writer (9.13).

Every part is the production code, on simulated disks, networks and metadata.
"""

import asyncio
import random

from bookie.wire.messages import Status
from ledger_client import LedgerClient, Quorum
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.repair.jobs import JobState
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from quire.repair.departures import LIMBO_REASON
from quire.repair.losses import LossAcceptance, LossSurvey
from quire.repair.needs import RepairClass
from tests.simulation.disk import Platter
from tests.simulation.nodes import ClientNode
from tests.support.repair.late_adds import add_late
from tests.support.repair.repair_world import THREE, World, loss_parts, play
from tests.support.repair.replicas import end, start_again

SOLE = Quorum(ensemble=1, write=1, ack=1)
Copies = dict[str, Platter]


def copy_disks(world: World) -> Copies:
    """Copy the files of all bookies, one by one."""
    return {str(b.bookie_id): b.platter.copied("old copy") for b in world.cluster.bookies}


async def start_on(world: World, bookie_id: str, copy: Platter) -> None:
    """Start a bookie on a copy of its disk, with which it is in limbo."""
    bookie = world.bookie(bookie_id)
    bookie.kill(power_off=True)
    copy.crash(random.Random(1))
    bookie.platter = copy
    bookie.start_after(1.0)
    assert await world.wait(lambda: bookie.is_registered)


async def use_again(world: World, bookie_id: str) -> None:
    """Make a drained bookie active, as an operator does whom no command stops."""
    await world.change(bookie_id, Lifecycle.ACTIVE)


def test_a_bookie_in_limbo_is_emptied_without_a_command() -> None:
    async def story(world: World) -> None:
        early = await world.write(4)
        copies = copy_disks(world)
        ids = early + await world.write(4)
        lame = world.ledger(ids[-1]).fragments[0].ensemble[0]
        await asyncio.sleep(5)
        await start_on(world, lame, copies[lame])
        await world.wait_for_state(lame, Lifecycle.LIMBO)
        record = await LifecycleStore(world.store, world.rng).get(BookieId(lame))
        assert record.reason == LIMBO_REASON
        await world.wait_for_state(lame, Lifecycle.DRAINED)
        assert not world.is_named(lame)
        end(world, lame, *world.ledger(ids[-1]).fragments[0].ensemble[:2])
        await world.read(early)
        for number, ledger_id in enumerate(ids[4:]):
            assert world.client is not None
            async with world.client.open_ledger(ledger_id) as reader:
                found = [entry.data async for batch in reader.read(0, 19) for entry in batch]
            assert found == [b"%d of %d" % (each, number) for each in range(20)]

    play(story, bookies=5)


def test_a_bookie_that_lost_its_index_is_emptied_without_a_command() -> None:
    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        sole_id = (await world.write(1, SOLE))[0]
        (lame,) = world.ledger(sole_id).fragments[0].ensemble
        bookie = world.bookie(lame)
        world.stop_in_order(lame)
        assert await world.wait(lambda: not bookie.is_running)
        del bookie.platter.stores["index"]
        start_again(world, lame)
        await world.wait_for_state(lame, Lifecycle.LIMBO)
        await world.wait_for_state(lame, Lifecycle.DRAINED)
        assert not world.is_named(lame)
        end(world, lame)
        await world.read([ledger_id])
        await world.read([sole_id])

    play(story, bookies=5)


def test_entries_that_only_a_bookie_in_limbo_has_are_copied() -> None:
    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1, SOLE)
        copies = copy_disks(world)
        await world.write(8)
        (lame,) = world.ledger(ledger_id).fragments[0].ensemble
        await asyncio.sleep(5)
        await start_on(world, lame, copies[lame])
        await world.wait_for_state(lame, Lifecycle.DRAINED)
        end(world, lame)
        await world.read([ledger_id])

    play(story, bookies=5)


def test_entries_that_a_bookie_in_limbo_may_have_are_no_loss() -> None:
    """It lost them, and it does not know that: an operator must decide."""

    async def story(world: World) -> None:
        copies = copy_disks(world)
        (ledger_id,) = await world.write(1, SOLE)
        (lame,) = world.ledger(ledger_id).fragments[0].ensemble
        await asyncio.sleep(5)
        await start_on(world, lame, copies[lame])
        job = await world.wait_for_job(ledger_id, JobState.BLOCKED)
        assert job.name.urgency == RepairClass.LAST_COPY
        assert f"({lame}: answered UNKNOWN)" in job.blocked_reason
        ledger = world.ledger(ledger_id)
        parts, pool, keys = await loss_parts(world, ledger)
        for gives_up in (False, True):
            assert await world.state_of(lame) is Lifecycle.LIMBO
            assert world.is_named(lame)
            acceptance = LossAcceptance(parts, LossSurvey(pool, keys), gives_up_unknown=gives_up)
            _, report = await acceptance.accept(ledger.ledger_id)
            assert report.lost == (((0, 19),) if gives_up else ())
        assert await world.wait(lambda: not world.is_named(lame), 700.0)
        await world.wait_for_state(lame, Lifecycle.DRAINED)

    play(story)


def test_a_bookie_in_limbo_that_ends_is_lost_with_what_only_it_may_have() -> None:
    async def story(world: World) -> None:
        copies = copy_disks(world)
        (ledger_id,) = await world.write(1, SOLE)
        (lame,) = world.ledger(ledger_id).fragments[0].ensemble
        await asyncio.sleep(5)
        await start_on(world, lame, copies[lame])
        await world.wait_for_state(lame, Lifecycle.LIMBO)
        end(world, lame)
        await world.wait_for_state(lame, Lifecycle.LOST)
        await world.wait_for_job(ledger_id, JobState.LOST)
        world.bookie(lame).is_wanted = True
        world.bookie(lame).start()
        await world.wait_for_state(lame, Lifecycle.LIMBO)
        await world.wait_for_job(ledger_id, JobState.BLOCKED)

    play(story)


def test_a_writer_leaves_a_bookie_in_limbo() -> None:
    async def story(world: World) -> None:
        copies = copy_disks(world)
        assert world.client is not None
        writer = await world.client.create_ledger(THREE)
        await writer.append(b"first")
        lame = world.ledger(writer.id).last_fragment.ensemble[0]
        await start_on(world, lame, copies[lame])
        assert await world.wait(
            lambda: lame not in world.ledger(writer.id).last_fragment.ensemble, 60.0
        )
        assert world.ledger(writer.id).state is LedgerState.OPEN
        await writer.append(b"second")
        await writer.aclose()
        await world.wait_for_state(lame, Lifecycle.DRAINED)

    play(story)


def test_an_old_copy_of_a_fenced_bookie_completes_no_ack_quorum() -> None:
    """The ledger is made after the copy, is fenced on two of three bookies, and is closed. One of
    the two returns on its old copy. With the third it would acknowledge an entry after the end.
    """

    async def story(world: World) -> None:
        copies = copy_disks(world)
        ids: list[int] = []

        async def write(_: ClientNode, client: LedgerClient, _rng: random.Random) -> None:
            writer = await client.create_ledger(THREE)
            await writer.append(b"first")
            await writer.wait_fully_replicated(0)
            ids.append(writer.id)
            await asyncio.Event().wait()

        old_writer = ClientNode(world.cluster, "old", write)
        old_writer.start()
        assert await world.wait(lambda: bool(ids))
        old_writer.is_wanted = False
        old_writer.kill(power_off=True)
        ledger = world.ledger(ids[0])
        lame, _, unfenced = ledger.fragments[0].ensemble
        world.bookie(unfenced).kill(power_off=True)
        assert world.client is not None
        info = await world.client.recover_ledger(LedgerId(ids[0]))
        assert info.last_entry_id == 0
        await start_on(world, lame, copies[lame])
        world.bookie(unfenced).start_after(0.0)
        assert await add_late(world, ledger, 1, unfenced) is Status.OK
        assert await add_late(world, ledger, 1, lame) is Status.UNKNOWN
        await world.wait_for_state(lame, Lifecycle.DRAINED)
        await use_again(world, lame)
        for _ in range(40):
            assert await add_late(world, ledger, 1, lame) is Status.UNKNOWN
            await asyncio.sleep(0.25)
        await world.bookie(lame).stop()
        assert await world.wait(lambda: world.bookie(lame).is_registered)
        assert await add_late(world, ledger, 1, lame) is Status.UNKNOWN
        await world.wait_for_state(lame, Lifecycle.DRAINED)
        assert await add_late(world, ledger, 1, lame) is not Status.OK

    play(story, bookies=5)
