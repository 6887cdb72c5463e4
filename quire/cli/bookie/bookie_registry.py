"""`quire bookie list|info|readonly|accept-metadata`: existing bookies and what each reports.

Leaves registrations to `metadata.registry.directory`, and a bookie's own numbers to its admin
server.
"""

import argparse

from ledger_client.cluster_access import open_cluster
from metadata.registry.registration import BookieRegistration
from quire.admin_api import AdminApiError, get_json, post_json
from quire.cli.as_json import registration_as_json
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import CommandError, ExitCode

COLUMNS = (
    "id",
    "state",
    "conditions",
    "address",
    "location",
    "host",
    "free_bytes",
    "admin_url",
)


class NoSuchBookieError(CommandError):
    """No bookie has this id."""

    code = ExitCode.NOT_FOUND

    def __init__(self, bookie_id: str) -> None:
        super().__init__(
            f"this cluster has no bookie {bookie_id}: check the id, and the cluster's address",
            try_next="quire bookie list",
        )


class BookieDownError(CommandError):
    """The bookie, or its admin server, cannot be reached now."""

    code = ExitCode.UNAVAILABLE


async def list_all(arguments: argparse.Namespace, output: Output) -> int:
    """List every bookie that was formatted and not removed."""
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
    """Print a bookie's registration, and its state as reported by its admin server."""
    registration = await _find(arguments)
    if registration is None:
        output.record({"id": arguments.bookie, "state": "down"})
        return ExitCode.FINDINGS
    row = registration_as_json(registration)
    if registration.admin_url:
        try:
            row["admin"] = await get_json(f"{registration.admin_url}/api/v1/state")
        except AdminApiError as error:
            row["admin_error"] = str(error)
    output.record(row)
    return ExitCode.DONE


async def switch_read_only(arguments: argparse.Namespace, output: Output) -> int:
    """Switch a bookie to read-only or back, durably."""
    wanted = arguments.switch == "on"
    return await _request_change(arguments, output, "read-only", {"read_only": wanted})


async def accept_metadata(arguments: argparse.Namespace, output: Output) -> int:
    """Make a bookie accept the present metadata as the newest, and remove unknown ledgers again."""
    return await _request_change(arguments, output, "accept-metadata", {})


async def _request_change(
    arguments: argparse.Namespace, output: Output, route: str, body: dict[str, bool]
) -> int:
    registration = await _find(arguments)
    if registration is None:
        raise BookieDownError(
            f"bookie {arguments.bookie} is not up: only a running bookie can be changed",
            try_next="quire bookie run --data-dir DIR",
        )
    try:
        answer = await post_json(f"{registration.admin_url}/api/v1/{route}", body)
    except AdminApiError as error:
        raise BookieDownError(
            f"bookie {arguments.bookie} was not changed: {error}",
            try_next="run this on the bookie's machine, or start the bookie with an --admin-host "
            "that can be reached from here",
        ) from error
    row = answer if isinstance(answer, dict) else {}
    output.record({"id": arguments.bookie, **row})
    return ExitCode.DONE


async def _find(arguments: argparse.Namespace) -> BookieRegistration | None:
    """Return a bookie's registration; None while it is down. Raises NoSuchBookieError."""
    wanted: str = arguments.bookie
    async with open_cluster(metadata_address(arguments)) as cluster:
        up = dict(cluster.directory.bookies)
        known = await cluster.cookies.list_bookie_ids()
    registration = next((each for each in up.values() if each.bookie_id == wanted), None)
    if registration is None and wanted not in known:
        raise NoSuchBookieError(wanted)
    return registration
