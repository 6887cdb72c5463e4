"""Ledgers with several needs in a simulated cluster: one that cannot be met keeps no other back."""

import asyncio
from collections import defaultdict

import pytest

from bookie.wire.messages import Status
from ledger_client import Quorum
from ledger_client.copying import (
    CopyTarget,
    FragmentCopier,
    OnProgress,
    RangeCopier,
    StoredMetadata,
)
from ledger_client.errors import EntryNotFoundError, QuorumTimeoutError
from ledger_client.protocol.copy import CopyPiece, copy_error
from ledger_client.reading.verified_entries import VerifiedEntries
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.repair.jobs import JobState
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.settings_store import RepairSettingsStore
from quire.repair.attempts import Outcome, Repaired
from quire.repair.ledger_repair import LedgerRepair, Look
from quire.repair.needs import RepairClass
from tests.simulation.loop import NODE
from tests.support.repair.copy_actions import Halt, at_each_action
from tests.support.repair.repair_world import World, play
from tests.support.repair.replicas import check_whole, end, lacks, start_again
from tests.unit.quire.repair.test_scrub_story import (
    FAST,
    damage,
    forget_recent,
    request_all,
    wait_for,
    write_singly,
)

TWO = Quorum(ensemble=2, write=2, ack=2)
STRIPED = Quorum(ensemble=5, write=2, ack=2, stripe_entries=1)


async def write_two_fragments(world: World) -> tuple[int, str, str]:
    """Write a closed ledger of which one member of the first fragment was replaced; return its id,
    that member, and the other one.
    """
    assert world.client is not None
    async with world.client.create_ledger(TWO) as writer:
        await writer.append(b"first")
        left, stayed = world.ledger(writer.id).fragments[0].ensemble
        end(world, left)
        await writer.append(b"second")
    start_again(world, left)
    await world.wait(lambda: world.bookie(left).is_registered)
    assert [fragment.first_entry_id for fragment in world.ledger(writer.id).fragments] == [0, 1]
    return writer.id, left, stayed


def test_a_fragment_without_any_copy_does_not_keep_the_others_back() -> None:
    async def story(world: World) -> None:
        ledger_id, left, stayed = await write_two_fragments(world)
        end(world, left, stayed)
        await world.wait_for_state(left, Lifecycle.LOST)
        await world.wait_for_state(stayed, Lifecycle.LOST)
        assert await world.wait(lambda: stayed not in world.ledger(ledger_id).fragments[1].ensemble)
        absent = lacks(world, world.ledger(ledger_id)).values()
        assert not any(1 in entries for entries in absent), "the second fragment is whole"
        await world.wait_for_job(ledger_id, JobState.LOST)

    play(story, bookies=5)


def test_a_stripe_without_any_copy_keeps_no_other_position_back() -> None:
    """Rules 9.3 and 9.7: two neighbours of five are lost, and two others drain."""

    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1, STRIPED)
        first, second, *drained, last = world.ledger(ledger_id).fragments[0].ensemble
        end(world, first, second)
        await world.wait_for_state(first, Lifecycle.LOST)
        await world.wait_for_state(second, Lifecycle.LOST)
        for bookie in drained:
            await world.change(bookie, Lifecycle.DRAINING)
        for bookie in drained:
            await world.wait_for_state(bookie, Lifecycle.DRAINED)
        ensemble = world.ledger(ledger_id).fragments[0].ensemble
        assert ensemble[:2] == (first, second)
        assert ensemble[4] == last
        await world.wait_for_job(ledger_id, JobState.LOST)
        start_again(world, first, second)
        await world.wait_for_state(first, Lifecycle.ACTIVE)
        await world.wait_for_state(second, Lifecycle.ACTIVE)
        check_whole(world, ledger_id)
        await world.read([ledger_id])

    play(story, bookies=8)


def test_a_fragment_that_was_not_begun_stays_when_its_drain_is_cancelled() -> None:
    halt = Halt("store")

    async def story(world: World) -> None:
        ledger_id, _, stayed = await write_two_fragments(world)
        await world.change(stayed, Lifecycle.DRAINING)
        await halt.reached.wait()
        second = world.ledger(ledger_id).fragments[1]
        await world.change(stayed, Lifecycle.ACTIVE)
        await asyncio.sleep(5)
        halt.released.set()
        assert await world.wait(lambda: stayed not in world.ledger(ledger_id).fragments[0].ensemble)
        await asyncio.sleep(60)
        assert world.ledger(ledger_id).fragments[1] == second
        check_whole(world, ledger_id)

    with at_each_action(halt.at):
        play(story, bookies=5)


@pytest.mark.parametrize("error", [EntryNotFoundError, QuorumTimeoutError])
def test_a_fragment_that_cannot_be_copied_does_not_keep_the_others_back(
    monkeypatch: pytest.MonkeyPatch, error: type[EntryNotFoundError | QuorumTimeoutError]
) -> None:
    copy_fragment = FragmentCopier.copy_fragment

    async def failing(
        self: FragmentCopier,
        ledger_id: LedgerId,
        first_entry_id: EntryId,
        target: BookieId,
        replaces: BookieId | None = None,
    ) -> StoredMetadata:
        if not first_entry_id:
            raise error("no source returns it", ledger_id=ledger_id)
        return await copy_fragment(self, ledger_id, first_entry_id, target, replaces)

    async def story(world: World) -> None:
        ledger_id, _, stayed = await write_two_fragments(world)
        monkeypatch.setattr(FragmentCopier, "copy_fragment", failing)
        end(world, stayed)
        assert await world.wait(lambda: stayed not in world.ledger(ledger_id).fragments[1].ensemble)
        assert stayed in world.ledger(ledger_id).fragments[0].ensemble
        state = JobState.BLOCKED if error is EntryNotFoundError else JobState.QUEUED
        job = await world.wait_for_job(ledger_id, state)
        assert job.name.urgency == RepairClass.LAST_COPY
        monkeypatch.undo()
        start_again(world, stayed)
        await world.wait_for_state(stayed, Lifecycle.ACTIVE)
        assert await world.wait(lambda: lacks(world, world.ledger(ledger_id)) == {})

    play(story, bookies=5)


def test_another_target_is_tried_when_one_does_not_return_what_it_stored(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    faulty: list[BookieId] = []
    outcomes: list[Outcome] = []
    check, repair = CopyTarget._check, LedgerRepair.repair

    async def failing(self: CopyTarget, piece: CopyPiece, first: EntryId) -> EntryId:
        if not faulty:
            faulty.append(self._bookie_id)
        if self._bookie_id in faulty:
            nothing = VerifiedEntries((), first, Status.UNKNOWN, "answered UNKNOWN", EntryId(-1))
            error = copy_error(self._bookie_id, piece, first, nothing, self._keys)
            assert error is not None
            raise error
        return await check(self, piece, first)

    async def noted(
        self: LedgerRepair,
        ledger_id: LedgerId,
        look: Look,
        on_progress: OnProgress,
    ) -> Outcome:
        outcomes.append(await repair(self, ledger_id, look, on_progress))
        return outcomes[-1]

    async def story(world: World) -> None:
        monkeypatch.setattr(CopyTarget, "_check", failing)
        monkeypatch.setattr(LedgerRepair, "repair", noted)
        (ledger_id,) = await world.write(1, TWO)
        gone, _ = world.ledger(ledger_id).fragments[0].ensemble
        end(world, gone)
        assert await world.wait(lambda: bool(outcomes))
        assert not world.is_named(gone)
        assert faulty
        assert outcomes == [Repaired(1)], "in the same attempt"
        check_whole(world, ledger_id)

    play(story, bookies=4)


async def drain_two(world: World) -> tuple[int, list[str]]:
    """Write a ledger, and begin to drain two of its members."""
    (ledger_id,) = await world.write(1)
    drained = [str(bookie) for bookie in world.ledger(ledger_id).fragments[0].ensemble[:2]]
    settings = RepairSettingsStore(world.store, world.rng)
    await settings.change(paused_until_ms=2**52)
    for each in drained:
        await world.change(each, Lifecycle.DRAINING)
    await settings.change(paused_until_ms=0)
    return ledger_id, drained


def test_a_pause_ends_only_the_copy_under_way() -> None:
    halt, marked = Halt("read"), list[str]()

    async def act(action: str) -> None:
        if action == "store the mark":
            marked.append(action)
        await halt.at(action)

    async def story(world: World) -> None:
        _, drained = await drain_two(world)
        await halt.reached.wait()
        settings = RepairSettingsStore(world.store, world.rng)
        await settings.change(paused_until_ms=2**52)
        await asyncio.sleep(1)
        halt.released.set()
        await asyncio.sleep(600)
        assert [world.is_named(each) for each in drained].count(True) == 1
        assert len(marked) == 1
        await settings.change(paused_until_ms=0)
        assert await world.wait(lambda: not any(map(world.is_named, drained)))

    with at_each_action(act):
        play(story, bookies=7)


def test_a_pause_begins_no_copy_of_the_next_damaged_range(monkeypatch: pytest.MonkeyPatch) -> None:
    copy, began = RangeCopier.copy, list[EntryId]()

    async def story(world: World) -> None:
        settings = RepairSettingsStore(world.store, world.rng)

        async def pausing(
            self: RangeCopier, first: EntryId, last: EntryId, target: BookieId
        ) -> int:
            began.append(first)
            if len(began) == 1:
                await settings.change(paused_until_ms=2**52)
                await asyncio.sleep(1)
            return await copy(self, first, last, target)

        monkeypatch.setattr(RangeCopier, "copy", pausing)
        await settings.change(paused_until_ms=2**52)
        ledger_id = await write_singly(world)
        bad_id = world.ledger(ledger_id).fragments[0].ensemble[0]
        bookie = await forget_recent(world, bad_id)
        damage(bookie, b"8 of 0")
        damage(bookie, b"17 of 0")
        await request_all(world)
        await wait_for(world, bad_id, lambda each: len(each.bad) == 2)
        await settings.change(paused_until_ms=0)
        await wait_for(world, bad_id, lambda each: len(each.bad) == 1)
        await asyncio.sleep(600)
        assert began == [8]
        await settings.change(paused_until_ms=0)
        await wait_for(world, bad_id, lambda each: not each.bad)

    play(story, **FAST)


def test_a_worker_whose_claim_ended_begins_no_other_copy_of_the_ledger() -> None:
    """Another worker has the claim: both would copy everything that is left."""
    reached = defaultdict[int | None, asyncio.Event](asyncio.Event)
    released = defaultdict[int | None, asyncio.Event](asyncio.Event)
    marked = list[int | None]()

    async def act(action: str) -> None:
        node = NODE.get()
        if action == "store the mark":
            marked.append(node)
        if action == "read":
            reached[node].set()
            await released[node].wait()

    async def story(world: World) -> None:
        _, drained = await drain_two(world)
        assert await world.wait(lambda: bool(marked))
        first, second = sorted(world.repairers, key=lambda each: each.node != marked[0])
        await reached[first.node].wait()
        assert first.store is not None
        first.store.expire()
        await reached[second.node].wait()
        released[first.node].set()
        await asyncio.sleep(30)
        assert marked.count(first.node) == 1
        released[second.node].set()
        assert await world.wait(lambda: not any(map(world.is_named, drained)))

    with at_each_action(act):
        play(story, bookies=7, repairers=2)
