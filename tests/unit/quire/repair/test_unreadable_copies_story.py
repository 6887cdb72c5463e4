"""Damage without a good copy beside what can be repaired, in a simulated cluster (9.3, 9.12)."""

import asyncio

import pytest

from ledger_client.copying import CopyTarget, RangeCopier
from ledger_client.errors import EntryNotFoundError, QuorumTimeoutError
from ledger_client.protocol.copy import CopyPiece
from metadata.ids import BookieId, EntryId
from metadata.repair.jobs import JobState
from metadata.repair.settings_store import RepairSettingsStore
from quire.repair.range_repair import FAILING_S_MAX
from tests.simulation.loop import NODE
from tests.support.repair.repair_world import THREE, World, play
from tests.support.repair.replicas import end
from tests.unit.quire.repair.test_scrub_story import (
    FAST,
    TWO,
    bad_entry,
    damage,
    forget_recent,
    record_of,
    request_all,
    wait_for,
    write_singly,
)


def test_a_damaged_last_copy_is_not_copied_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    stored: list[int] = []
    store = CopyTarget.store

    async def counted(self: CopyTarget, piece: CopyPiece) -> CopyPiece:
        stored.append(piece.entry_count)
        return await store(self, piece)

    async def story(world: World) -> None:
        monkeypatch.setattr(CopyTarget, "store", counted)
        ledger_id = await write_singly(world, TWO)
        gone, bad_id = world.ledger(ledger_id).fragments[0].ensemble
        damage(await forget_recent(world, bad_id), b"17 of 0")
        end(world, gone)
        await asyncio.sleep(600)
        (job,) = world.jobs.published()
        assert job.state is JobState.BLOCKED
        assert "17" in job.blocked_reason
        copied = sum(stored)
        await asyncio.sleep(600)
        assert sum(stored) == copied <= 100, "it is tried again only after a change"

    play(story, bookies=4)


def test_what_has_no_copy_does_not_block_what_was_only_slow(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy, tried = RangeCopier.copy, list[EntryId]()

    async def slow(self: RangeCopier, first: EntryId, last: EntryId, target: BookieId) -> int:
        tried.append(first)
        if first == 3 and tried.count(first) < 6:
            raise QuorumTimeoutError("a bookie is slow", entry_id=first)
        return await copy(self, first, last, target)

    async def story(world: World) -> None:
        monkeypatch.setattr(RangeCopier, "copy", slow)
        ledger_id = await write_singly(world, THREE)
        a, b, c = world.ledger(ledger_id).fragments[0].ensemble
        end(world, c)
        damage(await forget_recent(world, a), b"3 of 0")
        damage(world.bookie(a), b"17 of 0")
        damage(await forget_recent(world, b), b"17 of 0")
        await request_all(world)
        found = bad_entry(ledger_id, 3)
        await wait_for(world, a, lambda each: found in each.bad)
        await asyncio.sleep(1_000)
        assert found not in (await record_of(world, a)).bad

    play(story, bookies=3, lost_after_s=100_000, urgent_after_s=100_000, **FAST)


def test_entries_that_always_fail_keep_no_others_of_their_ledger_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An attempt ends at the first failure here, and the first entry always fails."""
    copy = RangeCopier.copy

    async def failing(self: RangeCopier, first: EntryId, last: EntryId, target: BookieId) -> int:
        if first == 3:
            raise EntryNotFoundError("no replica returned it", entry_id=first)
        return await copy(self, first, last, target)

    async def story(world: World) -> None:
        monkeypatch.setattr(RangeCopier, "copy", failing)
        monkeypatch.setattr("quire.repair.range_repair.FAILING_S_MAX", -1.0)
        ledger_id = await write_singly(world, TWO)
        bad_id = world.ledger(ledger_id).fragments[0].ensemble[0]
        damage(await forget_recent(world, bad_id), b"3 of 0")
        damage(world.bookie(bad_id), b"8 of 0")
        damage(world.bookie(bad_id), b"17 of 0")
        await request_all(world)
        await wait_for(world, bad_id, lambda each: len(each.bad) == 3)
        await wait_for(world, bad_id, lambda each: each.bad == (bad_entry(ledger_id, 3),))

    play(story, **FAST)


def test_copies_that_fail_slowly_keep_no_other_range_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """And when each range was tried, the job is blocked, and not tried again without a change."""
    copy, tried = RangeCopier.copy, list[EntryId]()

    async def failing(self: RangeCopier, first: EntryId, last: EntryId, target: BookieId) -> int:
        tried.append(first)
        if first < 17:
            await asyncio.sleep(2 * FAILING_S_MAX)
            raise EntryNotFoundError("no source returns it", entry_id=first)
        return await copy(self, first, last, target)

    async def story(world: World) -> None:
        monkeypatch.setattr(RangeCopier, "copy", failing)
        ledger_id = await write_singly(world, THREE)
        bad_id = world.ledger(ledger_id).fragments[0].ensemble[0]
        bookie = await forget_recent(world, bad_id)
        for payload in (b"3 of 0", b"8 of 0", b"17 of 0"):
            damage(bookie, payload)
        await request_all(world)
        found = bad_entry(ledger_id, 17)
        await wait_for(world, bad_id, lambda each: found in each.bad)
        await asyncio.sleep(3_000)
        assert (await record_of(world, bad_id)).bad == tuple(
            bad_entry(ledger_id, each) for each in (3, 8)
        )
        (job,) = world.jobs.published()
        assert job.state is JobState.BLOCKED
        assert "entry 3 " in job.blocked_reason, "the last attempt knows what failed in the first"
        states = [each.state for each in world.jobs.stored]
        assert states == [JobState.QUEUED, JobState.BLOCKED] * 2, "no attempt repaired all"
        count = len(tried)
        await asyncio.sleep(1_000)
        assert len(tried) == count

    play(story, **FAST)


def test_a_rest_that_another_worker_repaired_is_not_continued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What failed in an earlier job of the ledger says nothing about other damage."""
    copy, failing = RangeCopier.copy, list[int]()

    async def fail_in_first(
        self: RangeCopier, first: EntryId, last: EntryId, target: BookieId
    ) -> int:
        failing.append(NODE.get())
        if NODE.get() == failing[0]:
            raise EntryNotFoundError("no source returns it", entry_id=first)
        return await copy(self, first, last, target)

    async def story(world: World) -> None:
        monkeypatch.setattr(RangeCopier, "copy", fail_in_first)
        monkeypatch.setattr("quire.repair.range_repair.FAILING_S_MAX", -1.0)
        ledger_id = await write_singly(world, TWO)
        bad_id, other_id = world.ledger(ledger_id).fragments[0].ensemble
        bookie = await forget_recent(world, bad_id)
        other = await forget_recent(world, other_id)
        damage(bookie, b"8 of 0")
        damage(bookie, b"17 of 0")
        await request_all(world)
        assert await world.wait(lambda: bool(failing))
        first, second = sorted(world.repairers, key=lambda each: each.node != failing[0])
        await asyncio.sleep(1)
        first.pause()  # it has put the job off, with a rest
        await wait_for(world, bad_id, lambda each: bool(each.ended_ms) and not each.bad)
        first.resume()
        await asyncio.sleep(30)
        second.is_wanted = False
        second.kill(power_off=False)
        monkeypatch.setattr(RangeCopier, "copy", copy)
        damage(other, b"3 of 0")
        await RepairSettingsStore(world.store, world.rng).change(scrub_requested_ms=10**12 + 1)
        known = len(world.jobs.stored)
        await wait_for(world, other_id, lambda each: bool(each.bad))
        await wait_for(world, other_id, lambda each: not each.bad)
        found = [(job.state, job.blocked_reason) for job in world.jobs.stored[known:]]
        assert found == [(JobState.QUEUED, "")], "the first attempt tried it"

    play(story, repairers=2, **FAST)
