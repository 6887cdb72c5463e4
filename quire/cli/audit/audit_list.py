"""`quire metadata audit`: the commands that changed the metadata themselves, the newest last.

Leaves the trail itself to `metadata.security.audit_trail`.
"""

import argparse
from dataclasses import asdict, fields

from ledger_client.cluster_access import open_cluster
from metadata.security.audit_trail import AuditRecord, AuditTrail
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import ExitCode


async def show(arguments: argparse.Namespace, output: Output) -> int:
    """Print the records, the oldest first."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        records = await AuditTrail(cluster.store, cluster.rng).get()
    with output.listing(*(each.name for each in fields(AuditRecord))) as listing:
        for each in records[-arguments.limit :]:
            listing.add(asdict(each))
    return ExitCode.DONE
