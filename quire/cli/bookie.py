"""`quire bookie list|info|readonly|accept-metadata|drain|undrain|remove`: bookies of a cluster.

Invariant: a dry run changes nothing.

Source: protocol rule 9.1; docs/repair.md.
"""

import argparse
from collections.abc import Mapping
from typing import Final

from ledger_client.cluster_access import Cluster, identity_of, open_cluster
from metadata.errors import MetadataFormatError
from metadata.ids import BookieId
from metadata.registry.positions import PositionStore
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import UNCHANGED, BookieLifecycle, Lifecycle
from metadata.repair.lifecycle_store import LifecycleStore
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.cli.progress import each_ledger
from quire.errors import ExitCode
from quire.operate.admin_api import AdminApiError, get_json
from quire.operate.as_json import DOWN, registration_as_json
from quire.operate.assessment import next_step
from quire.operate.bookie_changes import (
    DrainForecast,
    Naming,
    NoSuchBookieError,
    Records,
    change_all,
    drain_forecast,
    naming_of,
    records_of,
    remove_all,
    request_change,
    require_allowed,
)
from quire.operate.drain_plan import TargetLoad
from quire.operate.faulty_servers import down_bookie
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
        registration = next((row for row in up.values() if row.bookie_id == wanted), None)
        if registration is None and wanted not in (*known, *states):
            raise NoSuchBookieError(wanted)
        bookie_id = BookieId(wanted)
        stop = {} if registration is not None else await _stop(cluster, bookie_id)
    return registration, states.get(bookie_id, UNCHANGED), stop


async def _stop(cluster: Cluster, bookie_id: BookieId) -> dict[str, Json]:
    """Return where a bookie that is down was, whether it stopped in order, and when."""
    try:
        record = (await PositionStore(cluster.store).get(bookie_id)).record
    except MetadataFormatError:
        return {}
    if record is None:
        return {"stopped": "never started", "stopped_ms": None}
    last = down_bookie(bookie_id, record)
    place: dict[str, Json] = {
        "address": last.address or None,
        "location": record.location or None,
        "host": last.host or None,
    }
    if record.stopped_ms is None:
        return place | {"stopped": "not in order", "stopped_ms": None}
    when = describe_time(record.stopped_ms)
    return place | {"stopped": f"in order at {when}", "stopped_ms": record.stopped_ms}


REMOVAL_COLUMNS: Final = ("id", "lifecycle", "ledgers_naming_it", "first_ledgers", "is_removable")


async def drain(arguments: argparse.Namespace, output: Output) -> int:
    """Begin to move everything away from bookies, or print what that would move."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        before = await records_of(cluster, arguments.bookies)
        require_allowed(cluster, before, Lifecycle.DRAINING, arguments.reason)
        if arguments.dry_run:
            ledgers = each_ledger(cluster, output)
            return _show_plan(await drain_forecast(cluster, tuple(before), ledgers), output)
        after = await change_all(cluster, before, Lifecycle.DRAINING, arguments.reason)
    _print_changes(after, before, output)
    if not output.as_json:
        output.remark("`quire repair status` shows what is left; `quire bookie undrain` ends it")
    return ExitCode.DONE


async def undrain(arguments: argparse.Namespace, output: Output) -> int:
    """Use bookies again that are draining or drained."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        before = await records_of(cluster, arguments.bookies)
        require_allowed(cluster, before, Lifecycle.ACTIVE, arguments.reason)
        after: Records = before
        if not arguments.dry_run:
            after = await change_all(cluster, before, Lifecycle.ACTIVE, arguments.reason)
    _print_changes(after, before, output)
    return ExitCode.DONE


async def remove(arguments: argparse.Namespace, output: Output) -> int:
    """Remove bookies for ever, after a pass that shows that nothing names them."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        before = await records_of(cluster, arguments.bookies)
        ledgers = each_ledger(cluster, output)
        if arguments.dry_run:
            return _print_removal(before, await naming_of(cluster, before, ledgers), output)
        after = await remove_all(cluster, before, arguments.reason, ledgers)
    _print_changes(after, before, output)
    return ExitCode.DONE


def _print_removal(before: Records, namings: Mapping[BookieId, Naming], output: Output) -> int:
    are_removable = True
    with output.lines(*REMOVAL_COLUMNS) as lines:
        for bookie_id, record in before.items():
            naming = namings[bookie_id]
            is_removable = naming.may_be_removed(record.state)
            are_removable = are_removable and is_removable
            lines.add(
                {
                    "id": bookie_id,
                    "lifecycle": str(record.state),
                    "ledgers_naming_it": naming.ledgers,
                    "first_ledgers": list(naming.first),
                    "ledgers_not_read": len(naming.unreadable),
                    "is_removable": is_removable,
                }
            )
    return ExitCode.DONE if are_removable else ExitCode.FINDINGS


def _show_plan(forecast: DrainForecast, output: Output) -> int:
    plan, estimate_s = forecast.plan, forecast.estimate_s
    loads = plan.loads()
    full = [load.bookie_id for load in loads if load.passes_mark]
    row: dict[str, Json] = {
        "ids": list(plan.bookies),
        "ledgers": plan.ledgers,
        "open_ledgers": plan.open_ledgers,
        "ledgers_not_read": forecast.unreadable,
        "bytes": plan.size_bytes,
        "estimate_s": None if estimate_s is None else round(estimate_s),
        "blocked_ledgers": plan.blocked.total(),
        "blocked": dict(plan.blocked.most_common()),
        "targets_that_would_be_full": list(full),
    }
    targets: list[Json] = [_load_row(load) for load in loads]
    columns = ("target", "bytes", "free_bytes", "would_be_full")
    output.document(row | {"targets": targets}, {"targets": columns})
    if full and not output.as_json:
        output.remark("disks of targets would be too full: add bookies first")
    return ExitCode.DONE if forecast.is_clear else ExitCode.FINDINGS


def _load_row(load: TargetLoad) -> dict[str, Json]:
    return {
        "target": load.bookie_id,
        "bytes": load.size_bytes,
        "free_bytes": load.free_bytes,
        "would_be_full": load.passes_mark,
    }


def _print_changes(after: Records, before: Records, output: Output) -> None:
    with output.lines("id", "lifecycle", "since_ms", "reason", "changed") as lines:
        for bookie_id, record in after.items():
            lines.add(
                {
                    "id": bookie_id,
                    "lifecycle": str(record.state),
                    "since_ms": record.since_ms,
                    "reason": record.reason,
                    "changed": record != before[bookie_id],
                }
            )
