"""`quire bookie list|info|readonly|accept-metadata`: existing bookies and what each reports.

Leaves registrations to `metadata.registry.directory`, and a bookie's own numbers to its admin
server.
"""

import argparse

from ledger_client.cluster_access import Cluster, identity_of, open_cluster
from metadata.errors import MetadataFormatError
from metadata.ids import BookieId
from metadata.registry.positions import PositionStore
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import UNCHANGED, BookieLifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.errors import ExitCode
from quire.operate.admin_api import AdminApiError, get_json
from quire.operate.as_json import DOWN, registration_as_json
from quire.operate.assessment import next_step
from quire.operate.bookie_changes import NoSuchBookieError, request_change
from quire.operate.fields import Json, describe_time

COLUMNS = (
    "id",
    "state",
    "lifecycle",
    "conditions",
    "stopped",
    "address",
    "location",
    "host",
    "free_bytes",
    "admin_url",
)


async def list_all(arguments: argparse.Namespace, output: Output) -> int:
    """List every bookie that was formatted, also those that were removed."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        up = cluster.directory.bookies
        known = await cluster.cookies.list_bookie_ids()
        states = await LifecycleStore(cluster.store, cluster.rng).get_all()
        with output.listing(*COLUMNS) as listing:
            for bookie_id in dict.fromkeys([*known, *up, *states]):
                registration = up.get(bookie_id)
                lifecycle = str(states.get(bookie_id, UNCHANGED).state)
                if registration is None:
                    row: dict[str, Json] = {"id": bookie_id, "state": DOWN}
                    listing.add(row | {"lifecycle": lifecycle} | await _stop(cluster, bookie_id))
                else:
                    listing.add(registration_as_json(registration) | {"lifecycle": lifecycle})
    return ExitCode.DONE


async def info(arguments: argparse.Namespace, output: Output) -> int:
    """Print a bookie's registration, and its state as reported by its admin server."""
    registration, record, stop = await _find(arguments)
    lifecycle: dict[str, Json] = {
        "lifecycle": str(record.state),
        "lifecycle_since_ms": record.since_ms or None,
        "lifecycle_reason": record.reason or None,
        "next": next_step(BookieId(arguments.bookie), record.state) or None,
    }
    if registration is None:
        output.record({"id": arguments.bookie, "state": DOWN} | stop | lifecycle)
        return ExitCode.FINDINGS
    row = registration_as_json(registration) | lifecycle
    if registration.admin_url:
        try:
            identity = identity_of(metadata_address(arguments))
            row["admin"] = await get_json(f"{registration.admin_url}/api/v1/state", identity)
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
    registration, _, _ = await _find(arguments)
    identity = identity_of(metadata_address(arguments))
    answer = await request_change(arguments.bookie, registration, identity, route, body)
    output.record({"id": arguments.bookie, **answer})
    return ExitCode.DONE


async def _find(
    arguments: argparse.Namespace,
) -> tuple[BookieRegistration | None, BookieLifecycle, dict[str, Json]]:
    """Return a bookie's registration, None while it is down, its state as operators and repair set
    it, and how it stopped. Raises NoSuchBookieError.
    """
    wanted: str = arguments.bookie
    async with open_cluster(metadata_address(arguments)) as cluster:
        up = dict(cluster.directory.bookies)
        known = await cluster.cookies.list_bookie_ids()
        states = await LifecycleStore(cluster.store, cluster.rng).get_all()
        registration = next((each for each in up.values() if each.bookie_id == wanted), None)
        if registration is None and wanted not in (*known, *states):
            raise NoSuchBookieError(wanted)
        bookie_id = BookieId(wanted)
        stop = {} if registration is not None else await _stop(cluster, bookie_id)
    return registration, states.get(bookie_id, UNCHANGED), stop


async def _stop(cluster: Cluster, bookie_id: BookieId) -> dict[str, Json]:
    """Return whether a bookie that is down stopped in order, and when."""
    try:
        record = (await PositionStore(cluster.store).get(bookie_id)).record
    except MetadataFormatError:
        return {}
    if record is None:
        return {"stopped": "never started", "stopped_ms": None}
    if record.stopped_ms is None:
        return {"stopped": "not in order", "stopped_ms": None}
    when = describe_time(record.stopped_ms)
    return {"stopped": f"in order at {when}", "stopped_ms": record.stopped_ms}
