"""Missing entries of a simulated cluster: found after a close, and stored where they belong (9.16).

Every part is the production code, on simulated disks, networks and metadata.
"""

import asyncio
from dataclasses import replace

from ledger_client import ClientConfig, Quorum
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.repair.job_store import JobStore
from metadata.repair.jobs import Job, JobState
from metadata.repair.lifecycle import Lifecycle
from tests.support.repair.repair_world import LONG_S, PLAN, THREE, Story, World, play_plan
from tests.support.repair.replicas import end, lacks

STRIPED = Quorum(ensemble=4, write=3, ack=2)
PASS_S = 700.0
"""More than the time between two passes of the auditor, and a copy."""
DEGRADED = replace(PLAN, config=ClientConfig(run_degraded=True))
PATIENT = {"lost_after_s": 3_000, "urgent_after_s": 3_000}


def play_short(story: Story, bookies: int = 3) -> None:
    """Run a story in a cluster without spares, whose bookies are not lost soon."""
    play_plan(story, replace(DEGRADED, bookie_count=bookies), 1, 1, PATIENT)


async def write_short(world: World, quorum: Quorum = THREE) -> LedgerMetadata:
    """Write a closed ledger while a member is away and there is no spare; start that again."""
    assert world.client is not None
    writer = await world.client.create_ledger(quorum)
    await writer.append(b"0 of 0")
    await writer.wait_fully_replicated(0)
    away = world.bookie(world.ledger(writer.id).last_fragment.ensemble[1])
    away.kill(power_off=True)
    await writer.append_many([b"%d of 0" % number for number in range(1, 20)])
    await writer.aclose()
    away.start_after(1.0)
    assert await world.wait(lambda: away.is_registered)
    ledger = world.ledger(writer.id)
    assert away.bookie_id in ledger.last_fragment.ensemble, "there is no spare"
    return ledger


async def wait_until_whole(world: World, ledger: LedgerMetadata, within_s: float = PASS_S) -> None:
    assert await world.wait(lambda: not lacks(world, ledger), within_s)


async def wait_for_job(world: World, state: JobState | None = None) -> Job:
    """Wait for the first job in a state, or in any."""

    def found() -> list[Job]:
        return [job for job in world.jobs.stored if state in (None, job.state)]

    assert await world.wait(lambda: bool(found()), PASS_S)
    return found()[0]


def test_entries_that_a_close_left_at_the_ack_quorum_are_stored() -> None:
    async def story(world: World) -> None:
        ledger = await write_short(world)
        lacking = ledger.last_fragment.ensemble[1]
        assert lacks(world, ledger) == {lacking: list(range(1, 20))}
        job = await wait_for_job(world)
        assert job.reasons == (f"entries 1-19 are missing on {lacking}",)
        await wait_until_whole(world, ledger)
        assert world.ledger(ledger.ledger_id) == ledger, "no bookie was replaced"
        end(world, *(bookie for bookie in ledger.last_fragment.ensemble if bookie != lacking))
        await world.read([ledger.ledger_id])

    play_short(story)


def test_exactly_the_stripes_of_a_position_are_stored() -> None:
    async def story(world: World) -> None:
        ledger = await write_short(world, STRIPED)
        lacking = ledger.last_fragment.ensemble[1]
        before = lacks(world, ledger)
        assert before.keys() == {lacking}
        await wait_until_whole(world, ledger)
        assert world.ledger(ledger.ledger_id) == ledger, "no bookie was replaced"
        held = world.cluster.model.held[lacking, ledger.ledger_id]
        assert sorted(held) == [0, *before[lacking]], "and nothing of the other positions"

    play_short(story, bookies=4)


def test_a_member_that_was_away_at_the_comparison_is_asked_when_it_returns() -> None:
    async def story(world: World) -> None:
        ledger = await write_short(world)
        lacking = ledger.last_fragment.ensemble[1]
        world.bookie(lacking).kill(power_off=True)
        await asyncio.sleep(PASS_S)
        assert not await JobStore(world.store, world.rng).published()
        world.bookie(lacking).start()
        await wait_until_whole(world, ledger, LONG_S)

    play_short(story)


def test_entries_without_another_copy_block_their_job() -> None:
    async def story(world: World) -> None:
        ledger = await write_short(world)
        lacking = ledger.last_fragment.ensemble[1]
        end(world, *(bookie for bookie in ledger.last_fragment.ensemble if bookie != lacking))
        jobs = JobStore(world.store, world.rng)
        job = await wait_for_job(world, JobState.BLOCKED)
        assert f"entries 1 to 19 on {lacking} cannot be repaired" in job.blocked_reason
        await asyncio.sleep(120)
        assert (await jobs.get(job.name))[0] == job, "it is not tried again without a change"
        for bookie in ledger.last_fragment.ensemble:
            world.bookie(bookie).is_wanted = True
            if bookie != lacking:
                world.bookie(bookie).start()
        await wait_until_whole(world, ledger)
        async with asyncio.timeout(LONG_S):
            while await jobs.published():  # noqa: ASYNC110 - virtual time
                await asyncio.sleep(1)

    play_short(story)


def test_a_bookie_that_drains_gets_no_missing_entries() -> None:
    async def story(world: World) -> None:
        ledger = await write_short(world)
        lacking = ledger.last_fragment.ensemble[1]
        await world.change(lacking, Lifecycle.DRAINING)
        await asyncio.sleep(PASS_S)
        assert lacks(world, ledger) == {lacking: list(range(1, 20))}
        await world.change(lacking, Lifecycle.ACTIVE)
        await wait_until_whole(world, ledger, LONG_S)

    play_short(story)
