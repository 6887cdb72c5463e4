"""`quire grant add|remove|list`: roles of principals on ledgers.

Leaves storing grants to `metadata.security.grant_store`, and enforcing them to the bookies.
"""

import argparse

from ledger_client.cluster_access import open_cluster
from metadata.security.grant_store import GrantStore
from metadata.security.ledger_grants import check_principal
from metadata.security.ledger_roles import LedgerGrant, parse_resource, parse_role
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import ExitCode
from quire.operate.fields import Row


async def add(arguments: argparse.Namespace, output: Output) -> int:
    """Give a principal a role on ledgers."""
    principal, grant = check_principal(arguments.principal), _grant_of(arguments)
    async with open_cluster(metadata_address(arguments)) as cluster:
        await GrantStore(cluster.store, cluster.rng).add(principal, grant)
    output.record(_as_row(principal, grant))
    return ExitCode.DONE


async def remove(arguments: argparse.Namespace, output: Output) -> int:
    """Take a role on ledgers away."""
    principal, grant = check_principal(arguments.principal), _grant_of(arguments)
    async with open_cluster(metadata_address(arguments)) as cluster:
        await GrantStore(cluster.store, cluster.rng).remove(principal, grant)
    output.record({**_as_row(principal, grant), "removed": True})
    return ExitCode.DONE


async def list_grants(arguments: argparse.Namespace, output: Output) -> int:
    """List the roles on ledgers, of all principals or of one."""
    wanted: str | None = arguments.principal
    async with open_cluster(metadata_address(arguments)) as cluster:
        store = GrantStore(cluster.store, cluster.rng)
        with output.listing("principal", "role", "ledgers") as listing:
            if wanted is not None:
                for grant in sorted(await store.get(wanted)):
                    listing.add(_as_row(wanted, grant))
                return ExitCode.DONE
            async for page in store.pages():
                for record in page:
                    for grant in record.grants:
                        listing.add(_as_row(record.principal, grant))
    return ExitCode.DONE


def _grant_of(arguments: argparse.Namespace) -> LedgerGrant:
    return LedgerGrant(parse_role(arguments.role), parse_resource(arguments.resource))


def _as_row(principal: str, grant: LedgerGrant) -> Row:
    return {"principal": principal, "role": str(grant.role), "ledgers": grant.resource.text}
