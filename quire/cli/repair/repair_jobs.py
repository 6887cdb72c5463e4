"""`quire repair list|run`: the published jobs, and jobs that an operator publishes.

Leaves jobs to `metadata.repair.job_store`.
"""

import argparse

from ledger_client.cluster_access import open_cluster
from metadata.ids import LedgerId
from metadata.repair.claims import ClaimStore
from metadata.repair.jobs import JobState
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import ExitCode
from quire.operate.repair_jobs import job_as_json, read_jobs, request_repair


async def list_jobs(arguments: argparse.Namespace, output: Output) -> int:
    """List the published jobs in the order in which they are done."""
    columns = ("ledger", "class", "state", "bytes", "worker", "reasons", "blocked_reason")
    async with open_cluster(metadata_address(arguments)) as cluster:
        claims = await ClaimStore(cluster.store, cluster.rng).get_all()
        by_ledger = {each.ledger_id: each for each in claims}
        with output.listing(*columns) as listing:
            for job in await read_jobs(cluster, arguments.urgency):
                is_wanted = not (
                    (arguments.blocked and job.state is not JobState.BLOCKED)
                    or (arguments.lost and job.state is not JobState.LOST)
                )
                if is_wanted:
                    listing.add(job_as_json(job, by_ledger.get(job.ledger_id)))
    return ExitCode.DONE


async def request(arguments: argparse.Namespace, output: Output) -> int:
    """Publish jobs of the first class for ledgers; workers find out what they need."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        published = await request_repair(cluster, [LedgerId(each) for each in arguments.ledgers])
        with output.listing("ledger", "published") as listing:
            for ledger_id, is_new in published.items():
                listing.add({"ledger": ledger_id, "published": is_new})
    return ExitCode.DONE
