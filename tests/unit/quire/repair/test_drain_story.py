"""Drains of a simulated cluster: cancelled, several at once, of a complete ensemble.

Every part is the production code, on simulated disks, networks and metadata.
"""

import asyncio
from typing import Any

import pytest

from ledger_client import LedgerWriter, Quorum
from ledger_client.copying import OnProgress
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.repair.job_store import JobStore
from metadata.repair.lifecycle import BookieLifecycle, Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from quire.repair.attempts import Outcome
from quire.repair.ledger_repair import LedgerRepair, Look
from quire.repair.standing import Standing
from quire.repair.worker import LEDGERS_AT_ONCE
from tests.support.repair.copy_actions import Halt, at_each_action
from tests.support.repair.repair_world import LONG_S, THREE, World, play
from tests.support.repair.replicas import check_whole, end, start_again

STRIPED = Quorum(ensemble=4, write=2, ack=2, stripe_entries=1)
TWO = Quorum(ensemble=2, write=2, ack=2)


def members(world: World, ledger_id: int) -> tuple[BookieId, ...]:
    return world.ledger(ledger_id).fragments[0].ensemble


async def wait_without_jobs(world: World) -> None:
    jobs = JobStore(world.store, world.rng)
    async with asyncio.timeout(LONG_S):
        while await jobs.published():  # noqa: ASYNC110 - virtual time
            await asyncio.sleep(0.5)


async def drain(world: World, *bookie_ids: str) -> None:
    """Drain bookies at once, until they are drained."""
    for bookie_id in bookie_ids:
        await world.change(bookie_id, Lifecycle.DRAINING)
    for bookie_id in bookie_ids:
        await world.wait_for_state(bookie_id, Lifecycle.DRAINED)


async def remove(world: World, *bookie_ids: str) -> None:
    """Remove drained bookies, and end them."""
    for bookie_id in bookie_ids:
        await world.change(bookie_id, Lifecycle.REMOVED)
    end(world, *bookie_ids)


@pytest.mark.parametrize("bookies", [4, 5], ids=["all wait for one target", "several targets"])
def test_a_drain_that_is_cancelled_leaves_what_was_not_begun(bookies: int) -> None:
    """A ledger that waits until its target gets fewer copies was not begun."""
    halt = Halt("store", is_for_all=True)

    async def story(world: World) -> None:
        ids = await world.write(20)
        before = {each: world.ledger(each) for each in ids}
        drains = before[ids[0]].fragments[0].ensemble[0]
        await world.change(drains, Lifecycle.DRAINING)
        await halt.reached.wait()
        await asyncio.sleep(5)
        begun = [each for each in ids if world.ledger(each) != before[each]]
        others = [each for each in ids if before[each].names(drains) and each not in begun]
        assert begun
        assert others
        await world.change(drains, Lifecycle.ACTIVE)
        await asyncio.sleep(5)
        halt.released.set()
        assert await world.wait(lambda: not any(world.ledger(each).names(drains) for each in begun))
        await wait_without_jobs(world)
        await asyncio.sleep(60)
        assert [world.ledger(other) for other in others] == [before[other] for other in others]
        for each in ids:
            check_whole(world, each)
        assert await world.state_of(drains) is Lifecycle.ACTIVE
        assert world.client is not None
        everywhere = Quorum(ensemble=bookies, write=bookies, ack=bookies)
        async with world.client.create_ledger(everywhere) as writer:
            await writer.append(b"on all bookies")
        assert world.ledger(writer.id).names(drains), "it is used again"

    with at_each_action(halt.at):
        play(story, bookies=bookies)


@pytest.mark.parametrize("quorum", [THREE, STRIPED], ids=["all on each", "striped"])
def test_two_drains_of_disjoint_members_of_one_ledger(quorum: Quorum) -> None:
    async def story(world: World) -> None:
        ids = await world.write(8, quorum)
        drained = world.ledger(ids[0]).fragments[0].ensemble[:2]
        await drain(world, *drained)
        assert not any(map(world.is_named, drained))
        await wait_without_jobs(world)
        for each in ids:
            check_whole(world, each)
        await remove(world, *drained)
        await world.read(ids)

    play(story, bookies=7, repairers=2)


async def ledger_on(world: World, bookie: BookieId) -> LedgerWriter:
    """Create ledgers until one is on a bookie; the others stay empty."""
    assert world.client is not None
    while True:
        writer = await world.client.create_ledger(Quorum(ensemble=4, write=4, ack=3))
        if world.ledger(writer.id).names(bookie):
            return writer
        await writer.aclose()


def test_a_drain_of_closed_empty_and_open_ledgers_with_several_fragments() -> None:
    async def story(world: World) -> None:
        assert world.client is not None
        ids = await world.write(3)
        drained = world.ledger(ids[0]).fragments[0].ensemble[0]
        empty = await ledger_on(world, drained)
        await empty.aclose()
        writer = await ledger_on(world, drained)
        await writer.append_many([b"%d of 0" % number for number in range(10)])
        await writer.wait_fully_replicated(9)
        other = next(b for b in world.ledger(writer.id).last_fragment.ensemble if b != drained)
        end(world, other)
        await writer.append_many([b"%d of 0" % number for number in range(10, 15)])
        assert await world.wait(lambda: len(world.ledger(writer.id).fragments) == 2)
        assert world.ledger(writer.id).names(drained)
        await drain(world, drained)
        assert not world.is_named(drained)
        assert world.ledger(writer.id).state is LedgerState.OPEN
        await writer.append_many([b"%d of 0" % number for number in range(15, 20)])
        await writer.aclose()
        await world.change(drained, Lifecycle.REMOVED)
        await world.read([writer.id])
        await world.read(ids)

    play(story, bookies=6)


@pytest.mark.parametrize("is_recovered", [False, True], ids=["opened", "recovered"])
def test_a_reader_that_was_open_reads_after_the_drain_of_the_complete_ensemble(
    *, is_recovered: bool
) -> None:
    async def story(world: World) -> None:
        assert world.client is not None
        (ledger_id,) = await world.write(1)
        if is_recovered:
            await world.client.recover_ledger(ledger_id)
        drained = world.ledger(ledger_id).fragments[0].ensemble
        async with world.client.open_ledger(ledger_id) as reader:
            assert (await reader.read_entry(0)).data == b"0 of 0"
            await drain(world, *drained)
            await remove(world, *drained)
            found = [entry.data async for batch in reader.read(0, 19) for entry in batch]
            assert found == [b"%d of 0" % number for number in range(20)]
        check_whole(world, ledger_id)

    play(story, bookies=6)


def test_long_copies_of_a_drain_leave_room_for_a_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many ledgers are moved that no place is left for another move."""
    repair = LedgerRepair.repair
    moved: list[LedgerId] = []
    lost: list[BookieId] = []

    async def slow(
        self: LedgerRepair,
        ledger_id: LedgerId,
        look: Look,
        on_progress: OnProgress,
    ) -> Outcome:
        standings, _ = await look()
        if not any(standings.of(bookie) is Standing.GONE for bookie in lost):
            moved.append(ledger_id)
            await asyncio.Event().wait()
        return await repair(self, ledger_id, look, on_progress)

    async def story(world: World) -> None:
        ids = await world.write(20, TWO)
        monkeypatch.setattr(LedgerRepair, "repair", slow)
        drained, gone = members(world, ids[0])
        await world.change(drained, Lifecycle.DRAINING)
        assert await world.wait(lambda: len(moved) == LEDGERS_AT_ONCE)
        end(world, gone)
        lost.append(gone)
        left = [each for each in ids if each not in moved and gone in members(world, each)]
        assert left
        assert await world.wait(lambda: not any(gone in members(world, each) for each in left))

    play(story)


def test_a_drain_of_a_lost_bookie_counts_although_the_auditor_sees_its_return(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The operator's change is stored between the auditor's look and its own change."""
    change = LifecycleStore.change

    async def story(world: World) -> None:
        ids = await world.write(8)
        drained = world.ledger(ids[0]).fragments[0].ensemble[0]
        drains = iter([Lifecycle.DRAINING])

        async def preceded(
            self: LifecycleStore, bookie_id: BookieId, to: Lifecycle, *args: Any, **options: Any
        ) -> BookieLifecycle:
            if to is Lifecycle.ACTIVE and next(drains, None) is not None:
                await change(self, bookie_id, Lifecycle.DRAINING, "an operator drains it", 5)
            return await change(self, bookie_id, to, *args, **options)

        end(world, drained)
        await world.wait_for_state(drained, Lifecycle.LOST)
        monkeypatch.setattr(LifecycleStore, "change", preceded)
        start_again(world, drained)
        await world.wait_for_state(drained, Lifecycle.DRAINED)
        assert next(drains, None) is None

    play(story, bookies=5)
