"""Published jobs are listed, and operators publish some."""

from dataclasses import replace
from random import Random

import pytest

from ledger_client.errors import LedgerNotFoundError
from metadata.ids import BookieId, EntryId, LedgerId, Version
from metadata.paths import repair_claim_path, repair_job_path
from metadata.repair.claims import ClaimStore
from metadata.repair.job_store import JobStore
from metadata.repair.jobs import Job, JobName, JobState
from metadata.repair.scrub import BadRange, ScrubRecord
from metadata.repair.scrub_store import ScrubStore
from quire.cli.repair.verbs import parser
from quire.operate import repair_jobs
from quire.operate.repair_jobs import TooManyJobsError
from quire.repair.publishing import REQUESTED
from tests.support.quire.memory_cluster import MemoryCluster
from tests.support.sample_ledgers import closed_ledger, open_ledger

LATE = Job(JobName(3, 50, LedgerId(1)), ("copies on a draining bookie",), 5)
BLOCKED = Job(JobName(2, 10, LedgerId(2)), (), 5, JobState.BLOCKED, "needs 4 bookies, has 3")
LOST = Job(JobName(9, 10, LedgerId(3)), (), 5, JobState.LOST, "no copy is left")


async def test_jobs_are_listed_in_their_order(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a")
    _, rows = await cluster.run(parser(), "list", "-o", "json")
    assert rows == []
    jobs = JobStore(cluster.store, Random(1))
    for job in (LOST, LATE, BLOCKED):
        await jobs.publish(job)
    held = await ClaimStore(cluster.store, Random(1)).claim(LedgerId(1), "w", 5)
    assert held is not None
    _, rows = await cluster.run(parser(), "list", "-o", "json")
    assert [row["ledger"] for row in rows] == [2, 1, 3]
    assert rows[0] == {
        "ledger": 2,
        "class": 2,
        "what": "fewer good copies than the write quorum",
        "state": "blocked",
        "bytes": 10,
        "since_ms": 5,
        "worker": None,
        "copied_bytes": None,
        "reasons": [],
        "blocked_reason": "needs 4 bookies, has 3",
    }
    assert rows[1]["worker"] == "w"
    for words, ledgers in ((("--blocked",), [2]), (("--lost",), [3]), (("--class", "3"), [1])):
        _, rows = await cluster.run(parser(), "list", *words, "-o", "json")
        assert [row["ledger"] for row in rows] == ledgers
    await held.release()


async def test_an_operator_requests_ledgers(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a")
    await cluster.add(closed_ledger("abc", ledger_id=4, length=77), open_ledger("abc", ledger_id=5))
    _, rows = await cluster.run(parser(), "run", "5", "4", "4", "-o", "json")
    assert rows == [{"ledger": 5, "published": True}, {"ledger": 4, "published": True}]
    jobs = JobStore(cluster.store, Random(1))
    names = [JobName(0, 0, LedgerId(5)), JobName(0, 77, LedgerId(4))]
    assert await jobs.published() == names
    job, version = await jobs.get(names[1])
    assert (job.reasons, job.state, version) == ((REQUESTED,), JobState.QUEUED, 0)
    _, rows = await cluster.run(parser(), "run", "4", "-o", "json")
    assert rows == [{"ledger": 4, "published": False}]
    with pytest.raises(LedgerNotFoundError):
        await cluster.run(parser(), "run", "4", "6", "-o", "json")


async def test_a_blocked_job_is_queued_again_by_a_request(memory_cluster: MemoryCluster) -> None:
    """The job of a ledger with one copy left may have the name of a request."""
    cluster = memory_cluster
    await cluster.create("a")
    await cluster.add(closed_ledger("abc", ledger_id=4, length=77))
    jobs = JobStore(cluster.store, Random(1))
    name = JobName(0, 77, LedgerId(4))
    await jobs.publish(Job(name, ("one copy left",), 5, JobState.BLOCKED, "needs 1 more bookie"))
    _, rows = await cluster.run(parser(), "run", "4", "-o", "json")
    assert rows == [{"ledger": 4, "published": True}]
    job, _ = await jobs.get(name)
    assert (job.state, job.reasons, job.blocked_reason) == (JobState.QUEUED, (REQUESTED,), "")


async def test_requests_are_limited(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(repair_jobs, "JOBS_MAX", 0)
    monkeypatch.setattr(repair_jobs, "REQUESTS_MAX", 1)
    await memory_cluster.create("a")
    await memory_cluster.add(*(closed_ledger("abc", ledger_id=each) for each in (4, 5)))
    with pytest.raises(TooManyJobsError, match="0 jobs are published already: no job was added"):
        await memory_cluster.run(parser(), "run", "4", "5", "-o", "json")
    await memory_cluster.run(parser(), "run", "4", "-o", "json")
    with pytest.raises(TooManyJobsError):
        await memory_cluster.run(parser(), "run", "5", "-o", "json")


async def test_a_ledger_is_explained(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a", "b", "c")
    await cluster.add(closed_ledger("abc", ledger_id=4))
    _, row = await cluster.run(parser(), "explain", "4", "-o", "json")
    assert (row["repair"], row["job"], row["class"]) == ("It needs no repair.", None, None)
    jobs = JobStore(cluster.store, Random(1))
    job = Job(JobName(0, 0, LedgerId(4)), (REQUESTED,), 5)
    await jobs.publish(job)
    blocked = replace(job, state=JobState.BLOCKED, blocked_reason="needs 4 bookies, has 3")
    await jobs.change(blocked, Version(0))
    _, row = await cluster.run(parser(), "explain", "4", "-o", "json")
    assert row["repair"] == "Blocked: needs 4 bookies, has 3."
    assert row["job"]["state"] == "blocked"
    assert row["fragments"][0]["bookies"] == {"a": "up", "b": "up", "c": "up"}
    _, text = await cluster.text(parser(), "explain", "4")
    assert "FIRST ENTRY ID" in text
    assert "a=up, b=up, c=up" in text
    assert REQUESTED in text, "the reason of its job"
    assert "damaged" not in text
    with pytest.raises(LedgerNotFoundError):
        await cluster.run(parser(), "explain", "6", "-o", "json")


async def test_damaged_entries_without_a_job_are_explained(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a", "b", "c")
    await cluster.add(closed_ledger("abc", ledger_id=4))
    bad = (BadRange(LedgerId(4), EntryId(3), EntryId(4)),)
    await ScrubStore(cluster.store, Random(1)).put(BookieId("b"), ScrubRecord(bad=bad))
    _, row = await cluster.run(parser(), "explain", "4", "-o", "json")
    assert (row["job"], row["class"]) == (None, 2)
    assert row["repair"].startswith("No auditor runs, so no job is published")
    assert row["damaged"] == [
        {
            "bookie": "b",
            "first_entry_id": 3,
            "last_entry_id": 4,
            "repair": "by a job, which is not published yet",
        }
    ]
    _, text = await cluster.text(parser(), "explain", "4")
    assert ["b", "3", "4", "by"] in [line.split()[:4] for line in text.splitlines()]


async def test_records_that_cannot_be_read_stop_no_list(memory_cluster: MemoryCluster) -> None:
    cluster = memory_cluster
    await cluster.create("a")
    for job in (LATE, BLOCKED):
        await JobStore(cluster.store, Random(1)).publish(job)
    version = (await cluster.store.get(repair_job_path(LATE.name.text))).version
    await cluster.store.compare_and_set(repair_job_path(LATE.name.text), b"\x91\x63", version)
    await cluster.store.create(repair_claim_path(LATE.ledger_id), b"\x91\x63")
    _, rows = await cluster.run(parser(), "list", "-o", "json")
    assert [row["ledger"] for row in rows] == [2, 1]
    assert rows[1]["blocked_reason"].startswith("its record is unreadable: it has format version")
    assert rows[1]["worker"] == "unreadable"
