"""Records that this release cannot read, of a later one, stop the repair of nothing else."""

import asyncio

import pytest

from metadata.ids import BookieId, LedgerId
from metadata.repair.job_store import JOB_KIND
from metadata.repair.jobs import JobName, JobState
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import LIFECYCLE_KIND
from metadata.repair.scrub_store import SCRUB_KIND
from metadata.repair.settings_store import RepairSettingsStore
from quire.repair.ledger_reads import LedgerReads
from quire.repair.needs import RepairClass
from tests.support.repair.repair_world import World, play
from tests.support.repair.replicas import end
from tests.unit.quire.repair.test_scrub_story import (
    FAST,
    damage,
    forget_recent,
    request_all,
    wait_for,
    write_singly,
)

UNREADABLE = b"\x91\x63"
"""A msgpack array that begins with format version 99."""


def test_an_unreadable_job_stops_no_other_job() -> None:
    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        gone = world.ledger(ledger_id).fragments[0].ensemble[0]
        first = JobName(RepairClass.LAST_COPY, 0, LedgerId(99))
        await world.store.create(JOB_KIND.path(first), UNREADABLE)
        end(world, gone)
        assert await world.wait(lambda: not world.is_named(gone))

    play(story)


def test_an_unreadable_state_of_a_bookie_stops_no_repair_and_takes_no_copy() -> None:
    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        gone = world.ledger(ledger_id).fragments[0].ensemble[0]
        known = [
            bookie.bookie_id for bookie in world.cluster.bookies if bookie.bookie_id is not None
        ]
        spare = next(each for each in known if not world.is_named(each))
        await world.store.create(LIFECYCLE_KIND.path(BookieId(spare)), UNREADABLE)
        end(world, gone)
        await world.wait_for_state(gone, Lifecycle.LOST)
        assert not await world.wait(lambda: world.is_named(spare), 60.0)
        assert await world.state_of(spare) is Lifecycle.UNREADABLE
        await world.change(spare, Lifecycle.DRAINING)
        await world.wait_for_state(spare, Lifecycle.DRAINED)
        await world.change(spare, Lifecycle.ACTIVE)
        assert await world.wait(lambda: world.is_named(spare) and not world.is_named(gone))

    play(story)


def test_a_bookie_with_an_unreadable_state_that_is_away_too_long_is_replaced() -> None:
    """The auditor cannot store that it is lost, and a worker knows no time."""

    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        gone = world.ledger(ledger_id).fragments[0].ensemble[0]
        await world.store.create(LIFECYCLE_KIND.path(BookieId(gone)), UNREADABLE)
        end(world, gone)
        assert await world.wait(lambda: not world.is_named(gone))
        assert len(world.jobs.stored) == 1

    play(story)


def test_a_scrub_record_that_becomes_unreadable_gets_no_jobs_again_and_again() -> None:
    """A worker finds no damage in it, so the auditor must not decide by what it said before."""

    async def story(world: World) -> None:
        settings = RepairSettingsStore(world.store, world.rng)
        await settings.change(paused_until_ms=2**52)
        ledger_id = await write_singly(world)
        bad_id = world.ledger(ledger_id).fragments[0].ensemble[0]
        damage(await forget_recent(world, bad_id), b"8 of 0")
        await request_all(world)
        await wait_for(world, bad_id, lambda each: bool(each.bad) and bool(each.ended_ms))
        await world.wait_for_job(ledger_id, JobState.QUEUED)
        path = SCRUB_KIND.path(BookieId(bad_id))
        await world.store.compare_and_set(path, UNREADABLE, (await world.store.get(path)).version)
        await settings.change(paused_until_ms=0)
        await asyncio.sleep(600)
        assert len(world.jobs.stored) == 1
        assert not world.jobs.published()

    play(story, **FAST)


def test_an_unreadable_ledger_keeps_a_bookie_from_being_drained_without_more_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It may name the bookie. All ledgers are read at the usual times only."""
    read, read_all = LedgerReads._read, LedgerReads.read_all
    unreadable: set[int] = set()
    passes: list[float] = []

    async def failing(self: LedgerReads, ledger_id: LedgerId, *, fresh: bool = False) -> None:
        if ledger_id in unreadable:
            self.unreadable_count += 1
        else:
            await read(self, ledger_id, fresh=fresh)

    async def counted(self: LedgerReads) -> None:
        passes.append(asyncio.get_running_loop().time())
        await read_all(self)

    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        unreadable.add(ledger_id)
        known = [
            bookie.bookie_id for bookie in world.cluster.bookies if bookie.bookie_id is not None
        ]
        idle = next(each for each in known if not world.is_named(each))
        monkeypatch.setattr("quire.repair.auditor.PASS_EVERY_S", 60.0)
        monkeypatch.setattr(LedgerReads, "read_all", counted)
        monkeypatch.setattr(LedgerReads, "_read", failing)
        await world.change(idle, Lifecycle.DRAINING)
        await asyncio.sleep(100)
        assert await world.state_of(idle) is Lifecycle.DRAINING
        assert len(passes) <= 3
        unreadable.clear()
        await asyncio.sleep(100)
        assert await world.state_of(idle) is Lifecycle.DRAINED

    play(story)
