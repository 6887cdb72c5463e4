"""Damaged entries of a simulated cluster: found by a scrub, and repaired where they are (9.12).

Every part is the production code, on simulated disks, networks and metadata.
"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from ledger_client import Quorum
from ledger_client.copying import RangeCopier
from ledger_client.errors import EntryNotFoundError
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.repair.jobs import Job, JobState
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.scrub import BadRange, ScrubRecord
from metadata.repair.scrub_store import ScrubStore
from metadata.repair.settings_store import RepairSettingsStore
from quire.repair.losses import LossAcceptance, LossSurvey
from quire.repair.needs import RepairClass
from quire.repair.publishing import SEEN_AFTER_S
from tests.simulation.nodes import BookieNode
from tests.support.repair.repair_world import LONG_S, THREE, World, loss_parts, play
from tests.support.repair.replicas import end, start_again

FAST = {"scrub_bytes_per_s": 10**9}
ALL = Quorum(ensemble=3, write=3, ack=3)
TWO = Quorum(ensemble=2, write=2, ack=2)
SOLE = Quorum(ensemble=1, write=1, ack=1)
PASS_S = 700.0
"""Somewhat more than the time between two passes of the auditor."""


def bad_entry(ledger_id: int, entry_id: int) -> BadRange:
    return BadRange(LedgerId(ledger_id), EntryId(entry_id), EntryId(entry_id))


def join(world: World) -> None:
    newcomer = BookieNode(world.cluster, 9)
    world.cluster.bookies.append(newcomer)
    newcomer.start()


def damage(bookie: BookieNode, payload: bytes) -> None:
    """Flip a bit of the payload of one entry in a bookie's log."""
    for name, content in bookie.platter.names.items():
        offset = bytes(content.current).find(payload)
        if name.startswith("log/") and offset >= 0:
            bookie.platter.flip_bit(name, offset * 8)
            return
    raise AssertionError(payload)


def log_bytes(bookie: BookieNode) -> bytes:
    contents = bookie.platter.names.items()
    return b"".join(bytes(content.current) for name, content in contents if name.startswith("log/"))


async def write_singly(world: World, quorum: Quorum = THREE) -> int:
    """Write a closed ledger whose entries are in records of their own; return its id."""
    assert world.client is not None
    async with world.client.create_ledger(quorum) as writer:
        for number in range(20):
            await writer.append(b"%d of 0" % number)
    return writer.id


async def forget_recent(world: World, bookie_id: str) -> BookieNode:
    """Restart a bookie, so that it has nothing but its disk."""
    bookie = world.bookie(bookie_id)
    bookie.kill(power_off=False)
    bookie.start_after(1.0)
    assert await world.wait(lambda: bookie.is_serving)
    return bookie


async def record_of(world: World, bookie_id: str) -> ScrubRecord:
    return await ScrubStore(world.store, world.rng).get(BookieId(bookie_id))


async def request_all(world: World) -> None:
    await RepairSettingsStore(world.store, world.rng).change(scrub_requested_ms=10**12)


async def wait_for(
    world: World, bookie_id: str, is_so: Callable[[ScrubRecord], bool]
) -> ScrubRecord:
    async with asyncio.timeout(LONG_S):
        while not is_so(record := await record_of(world, bookie_id)):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    return record


async def wait_for_block(world: World) -> Job:
    job = await wait_for_reason(world)
    assert job.state is JobState.BLOCKED
    return job


async def wait_for_reason(world: World) -> Job:
    """Wait until a job shows why it is not done."""
    async with asyncio.timeout(LONG_S):
        while True:
            found = [job for job in world.jobs.published() if job.blocked_reason]
            if found:
                return found[0]
            await asyncio.sleep(0.2)


def test_a_damaged_entry_is_found_by_a_scrub_and_stored_again() -> None:
    async def story(world: World) -> None:
        ledger_id = await write_singly(world)
        before = world.ledger(ledger_id)
        bad_id, *others = before.fragments[0].ensemble
        bookie = world.bookie(bad_id)
        damage(bookie, b"7 of 0")
        old_log = log_bytes(bookie)
        await request_all(world)
        found = await wait_for(world, bad_id, lambda each: bool(each.bad))
        assert found.bad == (bad_entry(ledger_id, 7),)
        await wait_for(world, bad_id, lambda each: not each.bad and bool(each.ended_ms))
        new_log = log_bytes(bookie)
        assert (old_log.count(b"7 of 0"), new_log.count(b"7 of 0")) == (1, 2), "7 and 17"
        assert new_log.count(b"8 of 0") == 2, "nothing else is copied again"
        assert world.ledger(ledger_id) == before, "no bookie was replaced"
        await asyncio.sleep(30)
        assert not world.jobs.published()
        await forget_recent(world, bad_id)
        for other in others:
            world.bookie(other).is_wanted = False
            world.bookie(other).kill(power_off=True)
        await world.read([ledger_id])

    play(story, **FAST)


def test_a_run_that_the_index_lost_is_found_again_without_a_copy() -> None:
    """The log still has it: the bookie answers "unknown" until its index is rebuilt."""

    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        before = world.ledger(ledger_id)
        bad_id, *others = before.fragments[0].ensemble
        bookie = world.bookie(bad_id)
        world.stop_in_order(bad_id)
        assert await world.wait(lambda: not bookie.is_running)
        store = bookie.platter.stores["index"]
        runs = [key for key in store.keys if key.startswith(b"r" + ledger_id.to_bytes(8))]
        assert runs
        for key in runs:
            store.assign(key, None)
        start_again(world, bad_id)
        assert await world.wait(lambda: bookie.is_registered)
        log = log_bytes(bookie)
        await request_all(world)
        await asyncio.sleep(120)
        assert not world.jobs.published()
        assert world.ledger(ledger_id) == before, "no bookie was replaced"
        assert log_bytes(bookie).count(b"7 of 0") == log.count(b"7 of 0"), "nothing was copied"
        end(world, *others)
        await world.read([ledger_id])

    play(story, **FAST)


def test_damage_that_a_read_finds_is_reported_and_repaired_too() -> None:
    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        bad_id = world.ledger(ledger_id).fragments[0].ensemble[0]
        bookie = await forget_recent(world, bad_id)
        damage(bookie, b"17 of 0")
        async with asyncio.timeout(LONG_S):
            while b"17 of 0" not in log_bytes(bookie):  # each read begins at another replica
                await world.read([ledger_id])
                await asyncio.sleep(1)
        record = await wait_for(world, bad_id, lambda each: not each.bad)
        assert record.began_ms == 0, "no scrub has begun"

    play(story, scrub_bytes_per_s=0)


def test_entries_without_another_copy_are_blocked_and_not_touched() -> None:
    async def story(world: World) -> None:
        ledger_id = await write_singly(world, SOLE)
        (bad_id,) = world.ledger(ledger_id).fragments[0].ensemble
        damage(await forget_recent(world, bad_id), b"17 of 0")
        old_log = log_bytes(world.bookie(bad_id))
        await request_all(world)
        job = await wait_for_block(world)
        assert job.reasons == (f"some entries are damaged on {bad_id}",)
        assert f"entry 17 on {bad_id} cannot be repaired, no good" in job.blocked_reason
        await asyncio.sleep(120)
        (now,) = world.jobs.published()
        assert replace(now, blocked_reason="") == replace(job, blocked_reason="")
        (bad,) = (await record_of(world, bad_id)).bad
        assert bad == bad_entry(ledger_id, 17)
        assert log_bytes(world.bookie(bad_id)) == old_log

    play(story, **FAST)


def test_damage_on_a_bookie_that_drains_makes_the_move_urgent() -> None:
    """Its other copies count, and the damaged ones do not."""

    async def story(world: World) -> None:
        ledger_id = await write_singly(world, TWO)
        bad_id, other = world.ledger(ledger_id).fragments[0].ensemble
        await world.change(bad_id, Lifecycle.DRAINING)
        job = await wait_for_block(world)  # a third bookie is missing
        assert job.name.urgency == RepairClass.DRAINING
        damage(await forget_recent(world, bad_id), b"17 of 0")
        await request_all(world)
        await wait_for(world, bad_id, lambda each: bool(each.bad))
        await asyncio.sleep(60)
        assert [each.name.urgency for each in world.jobs.published()] == [RepairClass.LAST_COPY]
        join(world)
        await world.wait_for_state(bad_id, Lifecycle.DRAINED)
        end(world, other, bad_id)
        await world.read([ledger_id])

    play(story, bookies=2, **FAST)


def test_new_damage_of_a_ledger_whose_repair_is_blocked_is_repaired(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    copy = RangeCopier.copy

    async def failing(self: RangeCopier, first: EntryId, last: EntryId, target: BookieId) -> int:
        if first == 17:
            raise EntryNotFoundError("no replica returned it", entry_id=first)
        return await copy(self, first, last, target)

    async def story(world: World) -> None:
        monkeypatch.setattr(RangeCopier, "copy", failing)
        settings = RepairSettingsStore(world.store, world.rng)
        ledger_id = await write_singly(world, TWO)
        bad_id = world.ledger(ledger_id).fragments[0].ensemble[0]
        damage(world.bookie(bad_id), b"17 of 0")
        await request_all(world)
        await wait_for_block(world)
        await asyncio.sleep(3 * SEEN_AFTER_S)
        damage(world.bookie(bad_id), b"3 of 0")
        await settings.change(scrub_requested_ms=2 * 10**12)
        found = (bad_entry(ledger_id, 3), bad_entry(ledger_id, 17))
        await wait_for(world, bad_id, lambda each: each.bad == found)
        await wait_for(world, bad_id, lambda each: each.bad == found[1:])

    play(story, **FAST)


def test_a_blocked_repair_is_tried_again_when_the_holder_returns() -> None:
    async def story(world: World) -> None:
        (ledger_id,) = ids = await world.write(1)
        bad_id, *others = world.ledger(ledger_id).fragments[0].ensemble
        for other in others:
            world.bookie(other).is_wanted = False
            world.bookie(other).kill(power_off=True)
        damage(await forget_recent(world, bad_id), b"17 of 0")
        await request_all(world)
        await wait_for_block(world)
        world.bookie(others[0]).is_wanted = True
        world.bookie(others[0]).start()
        await wait_for(world, bad_id, lambda each: not each.bad)
        await world.read(ids)

    play(story, lost_after_s=3_000, urgent_after_s=3_000, **FAST)


def test_an_accepted_loss_of_damaged_entries_ends_their_job() -> None:
    """What is left of the ledger gets its copies."""

    async def story(world: World) -> None:
        ledger_id = await write_singly(world, TWO)
        gone, kept = world.ledger(ledger_id).fragments[0].ensemble
        damage(await forget_recent(world, kept), b"17 of 0")
        end(world, gone)
        await world.wait_for_state(gone, Lifecycle.LOST)
        job = await wait_for_reason(world)
        assert f"no replica returned entry 17 ({gone}: " in job.blocked_reason
        ledger = world.ledger(ledger_id)
        parts, pool, keys = await loss_parts(world, ledger)
        acceptance = LossAcceptance(parts, LossSurvey(pool, keys))
        _, report = await acceptance.accept(ledger.ledger_id)
        assert report.lost == ((17, 17),)
        assert await world.wait(lambda: not world.is_named(gone), PASS_S)
        async with asyncio.timeout(PASS_S):
            while world.jobs.published():  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(1)

    play(story)


def test_a_member_that_does_not_answer_in_time_blocks_no_repair() -> None:
    """It stays registered, so that no change of the members would end the block."""

    async def story(world: World) -> None:
        ledger_id = await write_singly(world, TWO)
        bad_id, other_id = world.ledger(ledger_id).fragments[0].ensemble
        bad = await forget_recent(world, bad_id)
        damage(bad, b"7 of 0")
        network, worker = world.cluster.network, world.repairers[0].host
        network.cut(worker, world.bookie(other_id).host)
        await request_all(world)
        await wait_for(world, bad_id, lambda each: bool(each.bad))
        await asyncio.sleep(60)
        (job,) = world.jobs.published()
        assert job.state is JobState.QUEUED
        network.heal(worker, world.bookie(other_id).host)
        await wait_for(world, bad_id, lambda each: not each.bad)
        await world.read([ledger_id])

    play(story, **FAST)


def test_damage_of_an_open_ledger_waits_for_its_close() -> None:
    async def story(world: World) -> None:
        assert world.client is not None
        writer = await world.client.create_ledger(ALL)  # every member has synced the entries
        await writer.append_many([b"%d of 0" % number for number in range(20)])
        bad_id = world.ledger(writer.id).last_fragment.ensemble[0]
        damage(world.bookie(bad_id), b"7 of 0")
        await request_all(world)
        await wait_for(world, bad_id, lambda each: bool(each.bad))
        await asyncio.sleep(60)
        assert not world.jobs.published()
        await writer.aclose()
        async with asyncio.timeout(1_000):
            while (await record_of(world, bad_id)).bad:  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(1)
        await world.read([writer.id])

    play(story, **FAST)


def test_a_restart_continues_the_scrub() -> None:
    async def story(world: World) -> None:
        ids = await world.write(12)
        bookie_id = world.ledger(ids[0]).fragments[0].ensemble[0]
        await request_all(world)
        half = await wait_for(
            world, bookie_id, lambda each: each.position is not None and each.checked_bytes > 0
        )
        world.bookie(bookie_id).kill(power_off=False)
        world.bookie(bookie_id).start_after(1.0)
        done = await wait_for(world, bookie_id, lambda each: bool(each.ended_ms))
        assert done.began_ms == half.began_ms
        assert done.served_ms == 10**12

    play(story, scrub_bytes_per_s=4_000)
