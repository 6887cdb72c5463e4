"""Published jobs of repair, and jobs that an operator publishes.

Leaves the records of jobs to `metadata.repair.job_store`.
"""

import asyncio
from collections.abc import Sequence
from typing import Final

from ledger_client.cluster_access import Cluster, read_ledger, wall_clock_ms
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import LedgerId
from metadata.repair.claims import Claim, ClaimStore
from metadata.repair.job_store import JOBS_MAX, JobStore
from metadata.repair.jobs import BYTES_MAX, Job, JobName, JobState
from quire.errors import CommandError
from quire.operate.fields import Json
from quire.operate.repair_summary import urgency_text
from quire.repair.needs import RepairClass
from quire.repair.publishing import REQUESTED

REQUESTS_MAX: Final = 100
"""Maximum number of jobs that operators publish in addition to JOBS_MAX of the auditor."""
READS_AT_ONCE: Final = 64


class TooManyJobsError(CommandError):
    """So many jobs are published already that more would not be done earlier."""


async def request_repair(cluster: Cluster, ledger_ids: Sequence[LedgerId]) -> dict[LedgerId, bool]:
    """Publish jobs of the first class for ledgers; return whether each is new. Raises
    LedgerNotFoundError and TooManyJobsError before any is published.
    """
    jobs = JobStore(cluster.store, cluster.rng)
    wanted: list[Job] = []
    for ledger_id in dict.fromkeys(ledger_ids):
        ledger, _ = await read_ledger(cluster, ledger_id)
        name = JobName(RepairClass.LAST_COPY, min(ledger.length or 0, BYTES_MAX), ledger_id)
        wanted.append(Job(name, (REQUESTED,), wall_clock_ms()))
    count = len(await jobs.published())
    if count + len(wanted) > JOBS_MAX + REQUESTS_MAX:
        raise TooManyJobsError(
            f"{count} jobs are published already: no job was added; wait until some are done",
            try_next="quire repair status --watch",
        )
    added = {
        job.ledger_id: await jobs.publish(job) or await _queue_again(jobs, job) for job in wanted
    }
    await jobs.announce()
    return added


async def read_jobs(
    cluster: Cluster, urgency: int | None = None, ledger_id: LedgerId | None = None
) -> list[Job]:
    """Read the published jobs in their order, of one class or ledger if that is given."""
    jobs = JobStore(cluster.store, cluster.rng)
    names = [
        each
        for each in await jobs.published()
        if urgency in (None, each.urgency) and ledger_id in (None, each.ledger_id)
    ]
    return await jobs_named(cluster, names)


async def jobs_named(cluster: Cluster, names: Sequence[JobName]) -> list[Job]:
    """Read jobs in the given order, without those that a worker has just done."""
    jobs, found = JobStore(cluster.store, cluster.rng), list[Job]()
    for start in range(0, len(names), READS_AT_ONCE):
        some = names[start : start + READS_AT_ONCE]
        found += filter(None, await asyncio.gather(*(_read(jobs, name) for name in some)))
    return found


async def jobs_as_json(cluster: Cluster, jobs: Sequence[Job]) -> list[dict[str, Json]]:
    """Return the fields of jobs, with the workers that do them."""
    claims = await ClaimStore(cluster.store, cluster.rng).get_all()
    by_ledger = {each.ledger_id: each for each in claims}
    return [job_as_json(each, by_ledger.get(each.ledger_id)) for each in jobs]


def job_as_json(job: Job, claim: Claim | None) -> dict[str, Json]:
    """Return the fields of a job, with the worker that does it."""
    return {
        "ledger": job.ledger_id,
        "class": job.name.urgency,
        "what": urgency_text(job.name.urgency),
        "state": str(job.state),
        "bytes": job.name.size_bytes,
        "since_ms": job.since_ms,
        "worker": None if claim is None else claim.worker_id,
        "copied_bytes": None if claim is None else claim.copied_bytes,
        "reasons": list(job.reasons),
        "blocked_reason": job.blocked_reason or None,
    }


async def _queue_again(jobs: JobStore, job: Job) -> bool:
    """Store a job in place of a blocked one of the same name; return whether there was one."""
    try:
        known, version = await jobs.get(job.name)
    except NodeNotFoundError:  # a worker has just done it
        return False
    return known.state is JobState.BLOCKED and await jobs.change(job, version) is not None


async def _read(jobs: JobStore, name: JobName) -> Job | None:
    try:
        return (await jobs.get(name))[0]
    except NodeNotFoundError:
        return None
    except MetadataFormatError as error:
        return Job(name, (), 0, JobState.BLOCKED, f"its record is unreadable: {error.why}")
