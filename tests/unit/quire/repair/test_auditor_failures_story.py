"""Calls of the auditor that fail once, or always: what it does nevertheless."""

import asyncio
from collections.abc import Iterable

import pytest

from metadata.errors import StoreUnavailableError
from metadata.ids import LedgerId, Version
from metadata.repair.job_store import JobStore
from metadata.repair.jobs import Job, JobState
from quire.repair.ledger_reads import LedgerReads
from tests.support.repair.repair_world import World, play
from tests.support.repair.replicas import end, start_again


def test_ledgers_that_are_set_aside_come_back_although_a_write_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The change of the cluster that brings them back is seen once."""
    monkeypatch.setattr("quire.repair.publishing.PUBLISHED_MAX", 1)
    failures: list[Job] = []
    fails = False
    change = JobStore.change

    async def change_or_fail(self: JobStore, job: Job, version: Version) -> Version | None:
        nonlocal fails
        if fails and job.state is JobState.QUEUED:
            fails = False
            failures.append(job)
            raise StoreUnavailableError("memory", "no answer")
        return await change(self, job, version)

    monkeypatch.setattr(JobStore, "change", change_or_fail)

    async def story(world: World) -> None:
        nonlocal fails
        ids = await world.write(8)
        one, two = world.ledger(ids[0]).fragments[0].ensemble[:2]
        end(world, one, two)

        def states() -> list[JobState]:
            return [job.state for job in world.jobs.published()]

        for _ in range(200):
            await world.wait(lambda: False, 1.0)
            if states() == [JobState.BLOCKED]:
                break
        assert states() == [JobState.BLOCKED], "the others are set aside"
        fails = True
        start_again(world, one)
        assert await world.wait(lambda: not world.is_named(two))
        assert failures

    play(story)


def test_a_pass_that_fails_stops_no_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quire.repair.auditor.PASS_EVERY_S", 10.0)
    read_all, passes = LedgerReads.read_all, 0

    async def read_once(self: LedgerReads) -> None:
        nonlocal passes
        passes += 1
        if passes > 1:
            raise StoreUnavailableError("memory", "no answer")
        await read_all(self)

    monkeypatch.setattr(LedgerReads, "read_all", read_once)

    async def story(world: World) -> None:
        ids = await world.write(3)
        await world.wait(lambda: passes > 1)
        gone = world.ledger(ids[0]).fragments[0].ensemble[0]
        end(world, gone)
        assert await world.wait(lambda: not world.is_named(gone))

    play(story)


def test_a_ledger_that_was_repaired_gets_no_job_again_although_a_read_of_it_failed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read, failed = LedgerReads.read, list[LedgerId]()

    async def read_or_fail(self: LedgerReads, ledger_ids: Iterable[LedgerId]) -> None:
        wanted = list(ledger_ids)
        if wanted and not failed:
            failed.extend(wanted)
            raise StoreUnavailableError("memory", "no answer")
        await read(self, wanted)

    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        await world.wait(lambda: False, 100.0)
        monkeypatch.setattr(LedgerReads, "read", read_or_fail)
        gone = world.ledger(ledger_id).fragments[0].ensemble[0]
        end(world, gone)
        assert await world.wait(lambda: not world.is_named(gone))
        await world.wait(lambda: False, 100.0)
        assert failed == [ledger_id]
        assert len(world.jobs.stored) == 1

    play(story)


@pytest.mark.parametrize("what", ["published", "announced"])
def test_a_defect_does_not_end_the_worker_of_a_process(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, what: str
) -> None:
    original, failures = getattr(JobStore, what), list[str]()

    async def fail_once(self: JobStore) -> object:
        task = asyncio.current_task()
        assert task is not None
        coroutine = task.get_coro()
        if not failures and getattr(coroutine, "__name__", "") == "_keep":
            failures.append(what)
            raise RuntimeError("a defect")
        return await original(self)

    async def story(world: World) -> None:
        (ledger_id,) = await world.write(1)
        monkeypatch.setattr(JobStore, what, fail_once)
        gone = world.ledger(ledger_id).fragments[0].ensemble[0]
        end(world, gone)
        assert await world.wait(lambda: not world.is_named(gone))
        assert failures

    play(story, repairers=1)
    assert "worker of repair failed" in caplog.text
