"""`quire metadata check`: consistency of all stored metadata.

Leaves the checks to `quire.operate.assessment`.
"""

import argparse

from ledger_client.cluster_access import open_cluster
from metadata.errors import MetadataFormatError
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.cli.progress import each_ledger
from quire.errors import ExitCode
from quire.operate.assessment import record_findings
from quire.operate.fields import Row
from quire.operate.findings import Finding


async def check(arguments: argparse.Namespace, output: Output) -> int:
    """Read every record, and compare the bookies that are up and the ledgers with them."""
    findings: list[Finding] = []
    count = 0
    async with open_cluster(metadata_address(arguments)) as cluster:
        formatted = dict.fromkeys(await cluster.cookies.list_bookie_ids())
        for bookie_id in formatted:
            try:
                await cluster.cookies.get(bookie_id)
            except MetadataFormatError as error:
                findings.append(Finding(f"cookie {bookie_id}", str(error), "restore it"))
        for bookie_id in cluster.directory.bookies:
            if bookie_id not in formatted:
                text = "is registered but has no cookie"
                findings.append(
                    Finding(f"bookie {bookie_id}", text, "stop it and check its data_dir")
                )
        async for ledger_id, ledger in each_ledger(cluster, output):
            count += 1
            if isinstance(ledger, MetadataFormatError):
                advice = f"use a newer release, or quire ledger delete {ledger_id}"
                findings.append(Finding(f"ledger {ledger_id}", str(ledger), advice))
            else:
                findings += record_findings(ledger, formatted)
    rows: list[Row] = [each.as_json() for each in findings]
    if output.as_json:
        output.record({"ledger_count": count, "finding_count": len(rows), "findings": rows})
    else:
        output.line(f"{count} ledgers, {len(formatted)} cookies: {len(rows)} findings")
        if rows:
            with output.listing("where", "what", "advice") as listing:
                for row in rows:
                    listing.add(row)
    return ExitCode.FINDINGS if findings else ExitCode.DONE
