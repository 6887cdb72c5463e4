"""`quire repair status`: what is left to repair, how fast, by which workers, and what blocks it.

Leaves the figures to the auditor, and their text to `quire.operate.repair_summary`.
"""

import argparse
import asyncio

from ledger_client.cluster_access import open_cluster
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import ExitCode
from quire.operate.repair_summary import TABLES, RepairSummary, read_summary

CLEAR_SCREEN = "\x1b[H\x1b[2J"


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


def _print(summary: RepairSummary, output: Output) -> None:
    row = summary.as_json()
    if output.as_json:
        output.record(row)
        return
    tables = {each.name: row.pop(each.name, []) for each in TABLES}
    output.record(row)
    for table in TABLES:
        rows = tables[table.name]
        if isinstance(rows, list) and rows:
            output.line("")
            with output.listing(*table.columns) as listing:
                for each in rows:
                    assert isinstance(each, dict), "a table has rows"
                    listing.add(each)
