"""What `quire bookie list|info` do: tell which bookies there are, and what each says of itself.

Leaves registrations to `metadata.directory`, and a bookie's own numbers to its admin server.
"""

import argparse

from ledger_client.cluster_access import open_cluster
from quire.admin_api import AdminApiError, get_json
from quire.cli.as_json import registration_as_json
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import CommandError, ExitCode

COLUMNS = ("id", "state", "address", "location", "free_bytes", "admin_url")


class NoSuchBookieError(CommandError):
    """No bookie has this id."""

    code = ExitCode.NOT_FOUND


async def list_all(arguments: argparse.Namespace, output: Output) -> int:
    """List every bookie that was formatted and not forgotten."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        up = cluster.directory.bookies
        known = await cluster.cookies.list_bookie_ids()
        with output.listing(*COLUMNS) as listing:
            for bookie_id in dict.fromkeys([*known, *up]):
                registration = up.get(bookie_id)
                if registration is None:
                    listing.add({"id": bookie_id, "state": "down"})
                else:
                    listing.add(registration_as_json(registration))
    return ExitCode.DONE


async def info(arguments: argparse.Namespace, output: Output) -> int:
    """Print a bookie's registration, and its state as its admin server tells it."""
    wanted: str = arguments.bookie
    async with open_cluster(metadata_address(arguments)) as cluster:
        up = dict(cluster.directory.bookies)
        known = await cluster.cookies.list_bookie_ids()
    registration = next((each for each in up.values() if each.bookie_id == wanted), None)
    if registration is None:
        if wanted not in known:
            raise NoSuchBookieError(f"there is no bookie {wanted}", try_next="quire bookie list")
        output.record({"id": wanted, "state": "down"})
        return ExitCode.FINDINGS
    row = registration_as_json(registration)
    if registration.admin_url:
        try:
            row["admin"] = await get_json(f"{registration.admin_url}/api/v1/state")
        except AdminApiError as error:
            row["admin_error"] = str(error)
    output.record(row)
    return ExitCode.DONE
