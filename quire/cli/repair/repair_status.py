"""`quire repair status`: what is left to repair, how fast, by which workers, and what blocks it.

Leaves the figures to the auditor, and their text to `quire.operate.repair_summary`.
"""

import argparse
import asyncio

from ledger_client.cluster_access import Cluster, open_cluster, wall_clock_ms
from metadata.paths import REPAIR_WORKERS
from metadata.repair.auditor_election import read_auditor_id
from metadata.repair.claims import ClaimStore
from metadata.repair.job_store import JobStore
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.repair.scrub_store import ScrubStore
from metadata.repair.settings_store import RepairSettingsStore
from metadata.repair.status_store import StatusStore
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import ExitCode
from quire.operate.repair_summary import RepairSummary

CLEAR_SCREEN = "\x1b[H\x1b[2J"
TABLES = (
    ("classes", ("class", "what", "ledgers", "bytes")),
    ("blocked", ("ledgers", "reason")),
    ("claims", ("ledger", "worker", "target", "copied_bytes", "total_bytes", "percent", "for_s")),
    ("away", ("id", "lost_in_s", "next")),
    ("bookies", ("id", "lifecycle", "reason", "next")),
    ("scrubs", ("id", "scrub", "checked_bytes", "bad_entries")),
)


async def status(arguments: argparse.Namespace, output: Output) -> int:
    """Print the state of repair, once or until interrupted."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        while True:
            summary = await read_summary(cluster)
            if arguments.watch and output.shows_to_person:
                output.results.write(CLEAR_SCREEN)
            _print(summary, output)
            output.results.flush()
            if not arguments.watch:
                return ExitCode.DONE
            await asyncio.sleep(arguments.interval)
            if not output.as_json:
                output.line("")


async def read_summary(cluster: Cluster) -> RepairSummary:
    """Read everything that the metadata says about repair."""
    store, rng = cluster.store, cluster.rng
    known = await cluster.cookies.list_bookie_ids()
    return RepairSummary(
        now_ms=wall_clock_ms(),
        settings=await RepairSettingsStore(store, rng).get(),
        auditor_id=await read_auditor_id(store),
        status=await StatusStore(store, rng).get(),
        workers=await store.children(REPAIR_WORKERS, fresh=True),
        published=await JobStore(store, rng).published(),
        claims=await ClaimStore(store, rng).get_all(),
        not_up=[each for each in known if each not in cluster.directory.bookies],
        lifecycles=await LifecycleStore(store, rng).get_all(),
        scrubs=await ScrubStore(store, rng).get_all(),
    )


def _print(summary: RepairSummary, output: Output) -> None:
    row = summary.as_json()
    if output.as_json:
        output.record(row)
        return
    tables = {name: row.pop(name, []) for name, _ in TABLES}
    output.record(row)
    for name, columns in TABLES:
        rows = tables[name]
        if isinstance(rows, list) and rows:
            output.line("")
            with output.listing(*columns) as listing:
                for each in rows:
                    assert isinstance(each, dict), "a table has rows"
                    listing.add(each)
