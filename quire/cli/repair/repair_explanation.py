"""`quire repair explain`: what one ledger lacks, and why it is not repaired yet.

Leaves the explanation to `quire.operate.repair_explanation`.
"""

import argparse

from ledger_client.cluster_access import open_cluster, read_ledger, wall_clock_ms
from metadata.ids import LedgerId
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import ExitCode
from quire.operate.repair_explanation import read_explanation
from quire.operate.repair_jobs import job_as_json


async def explain(arguments: argparse.Namespace, output: Output) -> int:
    """Print what each fragment of a ledger lacks, and the state of its job."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        ledger, _ = await read_ledger(cluster, LedgerId(arguments.ledger))
        explanation = await read_explanation(cluster, ledger, wall_clock_ms())
    job, claim = explanation.job, explanation.claim
    row = explanation.as_json() | {"job": None if job is None else job_as_json(job, claim)}
    if output.as_json:
        output.record(row)
        return ExitCode.DONE
    fragments, damaged = row.pop("fragments"), row.pop("damaged")
    row["job"] = "; ".join(job.reasons) if job is not None else None
    output.record(row)
    output.line("")
    with output.listing("first_entry_id", "bookies", "incoming", "lacks") as listing:
        assert isinstance(fragments, list), "a ledger has fragments"
        for each in fragments:
            listing.add(each)
    if not damaged:
        return ExitCode.DONE
    output.line("\ndamaged entries")
    with output.listing("bookie", "first_entry_id", "last_entry_id", "repair") as listing:
        assert isinstance(damaged, list), "they are rows"
        for each in damaged:
            listing.add(each)
    return ExitCode.DONE
