"""`quire bookie drain|undrain|remove`: takes bookies out of service, or back into it.

Leaves the changes and their checks to `lifecycle_changes`.

Invariant: a dry run changes nothing.

Source: protocol rule 9.1; docs/repair.md.
"""

import argparse
from collections.abc import Mapping
from typing import Final

from ledger_client.cluster_access import open_cluster
from metadata.ids import BookieId
from metadata.repair.lifecycle import Lifecycle
from quire.cli.command_line import metadata_address
from quire.cli.output import Output
from quire.cli.progress import each_ledger
from quire.errors import ExitCode
from quire.operate.bookie_changes import (
    DrainForecast,
    Naming,
    Records,
    change_all,
    drain_forecast,
    naming_of,
    records_of,
    remove_all,
    require_allowed,
)
from quire.operate.drain_plan import TargetLoad
from quire.operate.fields import Json

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
    _print(after, before, output)
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
    _print(after, before, output)
    return ExitCode.DONE


async def remove(arguments: argparse.Namespace, output: Output) -> int:
    """Remove bookies for ever, after a pass that shows that nothing names them."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        before = await records_of(cluster, arguments.bookies)
        ledgers = each_ledger(cluster, output)
        if arguments.dry_run:
            return _print_removal(before, await naming_of(cluster, before, ledgers), output)
        after = await remove_all(cluster, before, arguments.reason, ledgers)
    _print(after, before, output)
    return ExitCode.DONE


def _print_removal(before: Records, found: Mapping[BookieId, Naming], output: Output) -> int:
    are_removable = True
    with output.lines(*REMOVAL_COLUMNS) as lines:
        for bookie_id, record in before.items():
            naming = found[bookie_id]
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
    full = [each.bookie_id for each in loads if each.passes_mark]
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
    if output.as_json:
        output.record(row | {"targets": [_load_row(each) for each in loads]})
    else:
        output.record(row)
        output.line("")
        with output.listing("target", "bytes", "free_bytes", "would_be_full") as listing:
            for each in loads:
                listing.add(_load_row(each))
        if full:
            output.remark("disks of targets would be too full: add bookies first")
    return ExitCode.DONE if forecast.is_clear else ExitCode.FINDINGS


def _load_row(load: TargetLoad) -> dict[str, Json]:
    return {
        "target": load.bookie_id,
        "bytes": load.size_bytes,
        "free_bytes": load.free_bytes,
        "would_be_full": load.passes_mark,
    }


def _print(after: Records, before: Records, output: Output) -> None:
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
