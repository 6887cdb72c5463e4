"""`quire repair explain`: what one ledger lacks, and why it is not repaired yet.

Leaves the explanation to `quire.operate.repair_explanation`.
"""

import argparse
import contextlib

from ledger_client.cluster_access import Cluster, open_cluster, read_ledger, wall_clock_ms
from metadata.errors import NodeNotFoundError
from metadata.ids import LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.repair.auditor_election import read_auditor_id
from metadata.repair.claims import ClaimStore
from metadata.repair.job_store import JobStore
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.repair.scrub_store import ScrubStore
from metadata.repair.settings_store import RepairSettingsStore
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.cli.repair.repair_jobs import job_as_json
from quire.errors import ExitCode
from quire.operate.repair_explanation import Explanation, job_of


async def read_explanation(cluster: Cluster, ledger: LedgerMetadata, now_ms: int) -> Explanation:
    """Read what the explanation of one ledger needs. Raises MetadataError."""
    store, rng, ledger_id = cluster.store, cluster.rng, ledger.ledger_id
    jobs = JobStore(store, rng)
    published = await jobs.published()
    name, job = job_of(published, ledger_id), None
    if name is not None:
        with contextlib.suppress(NodeNotFoundError):  # a worker has just done it
            job, _ = await jobs.get(name)
    claims = await ClaimStore(store, rng).get_all()
    return Explanation(
        ledger=ledger,
        up=dict(cluster.directory.bookies),
        lifecycles=await LifecycleStore(store, rng).get_all(),
        scrubs=await ScrubStore(store, rng).get_all(),
        settings=await RepairSettingsStore(store, rng).get(),
        auditor_id=await read_auditor_id(store),
        published=published,
        job=job,
        claim=next((each for each in claims if each.ledger_id == ledger_id), None),
        now_ms=now_ms,
    )


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
