"""Published jobs: changed and removed by version (rules 1.2-1.3), with every outcome decided."""

import random
from dataclasses import replace

import pytest

from metadata.errors import NodeNotFoundError, StoreUnavailableError
from metadata.ids import LedgerId, Version
from metadata.paths import REPAIR_JOBS
from metadata.repair.job_store import NEVER_ANNOUNCED, JobStore
from metadata.repair.jobs import Job, JobName, JobState
from metadata.store.memory import MemoryMetadataStore
from tests.support.metadata.scripted_faults import ScriptedFaults
from tests.until import until

JOB = Job(JobName(2, 5_000, LedgerId(17)), ("bookie-a is lost",), 9)
BLOCKED = replace(JOB, state=JobState.BLOCKED, blocked_reason="needs 4 bookies, has 3")
OUTCOMES = ["", "lost", "dropped", "late"]


def job(urgency: int, size_bytes: int, ledger_id: int) -> Job:
    return Job(JobName(urgency, size_bytes, LedgerId(ledger_id)), (), 0)


async def test_jobs_are_listed_as_they_are_to_be_done(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    jobs = JobStore(store, rng)
    assert await jobs.published() == []
    expected = [job(0, 900, 4), job(1, 10, 9), job(1, 200, 2), job(1, 200, 3), job(3, 1, 1)]
    for each in (expected[i] for i in (3, 0, 4, 2, 1)):
        assert await jobs.publish(each)
    await store.create(f"{REPAIR_JOBS}/not a job", b"")
    assert await jobs.published() == [each.name for each in expected]


async def test_a_published_job_stays_as_it_is(
    store: MemoryMetadataStore, rng: random.Random
) -> None:
    jobs = JobStore(store, rng)
    assert await jobs.publish(JOB)
    assert not await jobs.publish(replace(JOB, since_ms=70))
    assert await jobs.get(JOB.name) == (JOB, 0)


@pytest.mark.parametrize("act", OUTCOMES)
async def test_a_job_is_published_changed_and_removed(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, act: str
) -> None:
    jobs = JobStore(store, rng)
    faults.acts = [act]
    assert await jobs.publish(JOB)
    faults.acts = [act]
    version = await jobs.change(BLOCKED, Version(0))
    assert version is not None
    assert await jobs.get(JOB.name) == (BLOCKED, version)
    faults.acts = [act]
    assert await jobs.remove(JOB.name, version)
    with pytest.raises(NodeNotFoundError):
        await jobs.get(JOB.name)
    assert await jobs.remove(JOB.name, version), "it is gone"


async def test_another_change_wins(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    here, there = JobStore(store, rng), JobStore(other_store, rng)
    await here.publish(JOB)
    version = await there.change(BLOCKED, Version(0))
    assert version is not None
    assert await here.change(replace(JOB, since_ms=70), Version(0)) is None
    assert not await here.remove(JOB.name, Version(0))
    assert await here.get(JOB.name) == (BLOCKED, version)
    assert await there.remove(JOB.name, version)
    assert await here.change(JOB, version) is None


@pytest.mark.parametrize("operation", ["publish", "change", "remove"])
async def test_a_refused_write_is_an_error(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, operation: str
) -> None:
    jobs = JobStore(store, rng)
    await jobs.publish(JOB)
    faults.acts = ["refused"]
    with pytest.raises(StoreUnavailableError):
        match operation:
            case "publish":
                await jobs.publish(job(1, 1, 1))
            case "change":
                await jobs.change(BLOCKED, Version(0))
            case _:
                await jobs.remove(JOB.name, Version(0))
    assert await jobs.get(JOB.name) == (JOB, 0)


async def test_jobs_are_watched(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    calls: list[None] = []
    cancel = JobStore(other_store, rng).watch(lambda: calls.append(None))
    await JobStore(store, rng).publish(JOB)
    await until(lambda: len(calls) == 1)
    await JobStore(store, rng).remove(JOB.name, Version(0))
    await until(lambda: len(calls) == 2)
    cancel()


async def test_an_announcement_is_seen_by_all(
    store: MemoryMetadataStore, other_store: MemoryMetadataStore, rng: random.Random
) -> None:
    jobs, others = JobStore(store, rng), JobStore(other_store, rng)
    await jobs.announce()
    assert await others.announced() == NEVER_ANNOUNCED, "there was never a job"
    await jobs.publish(JOB)
    before, calls = await others.announced(), list[int]()
    cancel = others.watch_announced(lambda: calls.append(1))
    await jobs.announce()
    await until(lambda: bool(calls))
    assert await others.announced() not in (before, NEVER_ANNOUNCED)
    cancel()


@pytest.mark.parametrize("act", ["lost", "dropped", "late", "refused"])
async def test_an_announcement_that_fails_is_no_error(
    store: MemoryMetadataStore, faults: ScriptedFaults, rng: random.Random, act: str
) -> None:
    jobs = JobStore(store, rng)
    await jobs.publish(JOB)
    faults.acts = [act]
    await jobs.announce()
    await jobs.announce()
    assert await jobs.get(JOB.name) == (JOB, 0)
