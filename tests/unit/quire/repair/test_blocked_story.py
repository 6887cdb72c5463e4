"""Blocked repairs of a simulated cluster: each is tried again after what blocked it has changed."""

import asyncio
from dataclasses import replace

import pytest

from ledger_client import Quorum
from ledger_client.copying import OnProgress
from metadata.errors import StoreUnavailableError
from metadata.ids import LedgerId, Version
from metadata.repair.job_store import JobStore
from metadata.repair.jobs import Job, JobName, JobState
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.settings_store import RepairSettingsStore
from quire.repair.attempts import Blocked, Outcome, Postponed, Repaired
from quire.repair.ledger_repair import LedgerRepair, Look
from quire.repair.publishing import REQUESTED, SEEN_AFTER_S
from quire.repair.worker import BLOCKED_AGAIN_S, LEDGERS_AT_ONCE
from tests.simulation.nodes import BookieNode
from tests.support.repair.repair_world import THREE, World, play
from tests.support.repair.replicas import end, start_again

TWO = Quorum(ensemble=2, write=2, ack=2)


async def all_are_blocked(world: World) -> None:
    """Wait until there are jobs, and all of them are blocked."""

    def is_so() -> bool:
        found = world.jobs.published()
        return bool(found) and all(job.state is JobState.BLOCKED for job in found)

    assert await world.wait(is_so)


def lose(world: World, ledger_id: int) -> str:
    """End a member of a closed ledger for good; return its id."""
    gone = world.ledger(ledger_id).fragments[0].ensemble[0]
    world.bookie(gone).is_wanted = False
    world.bookie(gone).kill(power_off=True)
    return gone


def join(world: World) -> None:
    newcomer = BookieNode(world.cluster, 9)
    world.cluster.bookies.append(newcomer)
    newcomer.start()


def test_a_job_that_is_blocked_after_the_bookie_joined_is_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The worker decided before the bookie joined, and stores it after that."""
    repair, decided, stored = LedgerRepair.repair, asyncio.Event(), asyncio.Event()

    async def delayed(
        self: LedgerRepair,
        ledger_id: LedgerId,
        look: Look,
        on_progress: OnProgress,
    ) -> Outcome:
        outcome = await repair(self, ledger_id, look, on_progress)
        if isinstance(outcome, Blocked):
            decided.set()
            await stored.wait()
        return outcome

    async def story(world: World) -> None:
        monkeypatch.setattr(LedgerRepair, "repair", delayed)
        (ledger_id,) = await world.write(1)
        gone = lose(world, ledger_id)
        await decided.wait()
        join(world)
        await asyncio.sleep(60.0)
        stored.set()
        assert await world.wait(lambda: not world.is_named(gone))

    play(story, bookies=3)


def test_a_job_that_is_tried_by_an_old_view_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker's session sees the new bookie 5 s later than the auditor's."""
    repair = LedgerRepair.repair
    joined = asyncio.Event()
    tried_s: list[float] = []

    async def lagging(
        self: LedgerRepair,
        ledger_id: LedgerId,
        look: Look,
        on_progress: OnProgress,
    ) -> Outcome:
        now_s = asyncio.get_running_loop().time()
        if joined.is_set():
            tried_s.append(now_s)
        if tried_s and now_s < tried_s[0] + 5.0:
            return Blocked("the new bookie was not seen yet")
        return await repair(self, ledger_id, look, on_progress)

    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        gone = lose(world, ledger_id)
        await all_are_blocked(world)
        monkeypatch.setattr(LedgerRepair, "repair", lagging)
        joined.set()
        join(world)
        assert await world.wait(lambda: not world.is_named(gone))
        assert len(tried_s) == 2, "at once, and once more"

    play(story, bookies=3)


def test_a_job_is_tried_again_when_a_bookie_that_takes_no_adds_returns() -> None:
    """It drains, and has the only copy."""

    async def story(world: World) -> None:
        settings = RepairSettingsStore(world.store, world.rng)
        (ledger_id,) = await world.write(1, TWO)
        gone, kept = world.ledger(ledger_id).fragments[0].ensemble
        await settings.change(paused_until_ms=2**52)
        await world.change(kept, Lifecycle.DRAINING)
        end(world, gone)
        await world.wait_for_state(gone, Lifecycle.LOST)
        await settings.change(paused_until_ms=0, lost_after_s=3_000, urgent_after_s=3_000)
        end(world, kept)
        await all_are_blocked(world)
        await asyncio.sleep(2 * SEEN_AFTER_S)
        start_again(world, kept)
        assert await world.wait(lambda: not world.is_named(gone))

    play(story)


def test_a_request_for_a_blocked_ledger_stays_until_a_worker_has_done_it() -> None:
    """The auditor knows the job as it was: blocked, and of a ledger that needs nothing any more."""

    async def story(world: World) -> None:
        settings, jobs = (
            RepairSettingsStore(world.store, world.rng),
            JobStore(world.store, world.rng),
        )
        (ledger_id,) = await world.write(1, TWO)
        gone = lose(world, ledger_id)
        await all_are_blocked(world)
        await asyncio.sleep(2 * SEEN_AFTER_S)
        await settings.change(paused_until_ms=2**52)
        (name,) = await jobs.published()
        _, version = await jobs.get(name)
        await jobs.change(Job(name, (REQUESTED,), 5), version)
        start_again(world, gone)
        await asyncio.sleep(2 * SEEN_AFTER_S)
        (job,) = world.jobs.published()
        assert (job.state, job.reasons) == (JobState.QUEUED, (REQUESTED,))
        await settings.change(paused_until_ms=0)
        assert await world.wait(lambda: not world.jobs.published())

    play(story, bookies=2)


def test_a_repair_that_fails_by_a_defect_is_put_off(monkeypatch: pytest.MonkeyPatch) -> None:
    repair = LedgerRepair.repair
    tried_s: list[float] = []

    async def failing(
        self: LedgerRepair,
        ledger_id: LedgerId,
        look: Look,
        on_progress: OnProgress,
    ) -> Outcome:
        tried_s.append(asyncio.get_running_loop().time())
        if tried_s[-1] < tried_s[0] + 60.0:
            raise ZeroDivisionError
        return await repair(self, ledger_id, look, on_progress)

    async def story(world: World) -> None:
        monkeypatch.setattr(LedgerRepair, "repair", failing)
        (ledger_id,) = await world.write(1)
        gone = lose(world, ledger_id)
        assert await world.wait(lambda: not world.is_named(gone))
        assert len(tried_s) < 10

    play(story)


def test_jobs_that_fail_slowly_leave_room_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """They come first, and there are more of them than may be under way."""
    repair = LedgerRepair.repair
    slow: list[int] = []
    failures: set[int] = set()

    async def failing(
        self: LedgerRepair,
        ledger_id: LedgerId,
        look: Look,
        on_progress: OnProgress,
    ) -> Outcome:
        if ledger_id not in slow:
            return await repair(self, ledger_id, look, on_progress)
        if ledger_id in failures:
            await asyncio.sleep(3_600)
        failures.add(ledger_id)
        return Postponed("a bookie is slow")

    async def story(world: World) -> None:
        monkeypatch.setattr(LedgerRepair, "repair", failing)
        slow.extend(await world.write(40, Quorum(ensemble=1, write=1, ack=1)))
        (ledger_id,) = await world.write(1)
        first, second, _ = world.ledger(ledger_id).fragments[0].ensemble
        await world.change(first, Lifecycle.DRAINING)
        assert await world.wait(lambda: first not in world.ledger(ledger_id).fragments[0].ensemble)
        await asyncio.sleep(120)
        assert len(failures) > LEDGERS_AT_ONCE
        await world.change(second, Lifecycle.DRAINING)
        assert await world.wait(lambda: second not in world.ledger(ledger_id).fragments[0].ensemble)

    play(story, bookies=6)


def test_a_job_that_is_requested_while_it_is_done_is_done_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried: list[LedgerId] = []

    async def story(world: World) -> None:
        jobs = JobStore(world.store, world.rng)

        async def blocked(_self: LedgerRepair, ledger_id: LedgerId, *_: object) -> Outcome:
            tried.append(ledger_id)
            if len(tried) > 1:
                return Repaired(0)
            (name,) = await jobs.published()
            job, version = await jobs.get(name)
            requested = replace(job, reasons=(*job.reasons, REQUESTED))
            assert await jobs.change(requested, version) is not None
            return Blocked("too early")

        monkeypatch.setattr(LedgerRepair, "repair", blocked)
        (ledger_id,) = await world.write(1)
        lose(world, ledger_id)
        assert await world.wait(lambda: bool(tried))
        assert await world.wait(lambda: len(tried) > 1, within_s=SEEN_AFTER_S / 2)

    play(story)


def test_a_job_is_queued_again_although_the_metadata_service_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    change = JobStore.change
    failures: list[Job] = []

    async def failing(self: JobStore, job: Job, expected: Version) -> Version | None:
        if job.state is JobState.QUEUED and not failures:
            failures.append(job)
            raise StoreUnavailableError("memory", "the test says so")
        return await change(self, job, expected)

    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        gone = lose(world, ledger_id)
        await all_are_blocked(world)
        monkeypatch.setattr(JobStore, "change", failing)
        join(world)
        assert await world.wait(lambda: not world.is_named(gone))
        assert failures

    play(story, bookies=3)


def test_many_blocked_ledgers_keep_no_other_one_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocked ones are smaller, so they are first, and as many as may be published."""
    monkeypatch.setattr("quire.repair.auditor.JOBS_MAX", 2)
    monkeypatch.setattr("quire.repair.publishing.PUBLISHED_MAX", 1)
    all_bookies = Quorum(ensemble=4, write=4, ack=3)

    async def story(world: World) -> None:
        blocked = await world.write(5, all_bookies)
        assert world.client is not None
        async with world.client.create_ledger(THREE) as writer:
            await writer.append_many([bytes(1_000)] * 20)
        gone = lose(world, writer.id)
        assert await world.wait(lambda: gone not in world.ledger(writer.id).fragments[0].ensemble)
        assert all(gone in world.ledger(each).fragments[0].ensemble for each in blocked)
        join(world)
        assert await world.wait(lambda: not world.is_named(gone))

    play(story)


def test_blocked_jobs_are_not_read_again_until_they_are_queued(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, get = list[JobName](), JobStore.get

    async def counted(self: JobStore, name: JobName) -> tuple[Job, Version]:
        read.append(name)
        return await get(self, name)

    async def story(world: World) -> None:
        ids = await world.write(10)
        gone = lose(world, ids[0])
        await all_are_blocked(world)
        await asyncio.sleep(60.0)
        monkeypatch.setattr(JobStore, "get", counted)
        await asyncio.sleep(BLOCKED_AGAIN_S)
        assert len(read) <= 2 * len(ids), "each of two workers reads each job once"
        join(world)
        assert await world.wait(lambda: not world.is_named(gone), BLOCKED_AGAIN_S / 2)

    play(story, bookies=3, repairers=2)


def test_a_job_that_an_older_release_queues_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    """It announces nothing: a worker reads blocked jobs again after some time."""

    async def nothing(_: JobStore) -> None:
        pass

    async def story(world: World) -> None:
        monkeypatch.setattr(JobStore, "announce", nothing)
        (ledger_id,) = await world.write(1)
        gone = lose(world, ledger_id)
        await all_are_blocked(world)
        join(world)
        assert await world.wait(lambda: not world.is_named(gone), 2 * BLOCKED_AGAIN_S)

    play(story, bookies=3)
