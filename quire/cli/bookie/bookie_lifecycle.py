"""`quire bookie drain|undrain|remove`: takes a bookie out of service, or back into it.

Leaves the states and their changes to `metadata.repair.lifecycle`, moving the copies to repair, and
what would be moved to `quire.drain_plan`.

Invariants: a bookie is removed only after a pass over all ledgers, which began after the command
did, found that nothing names it; a dry run changes nothing.

Source: protocol rule 9.1; docs/repair.md.
"""

import argparse
from dataclasses import dataclass, field
from typing import Final

from ledger_client.cluster_access import Cluster, open_cluster, wall_clock_ms
from metadata.errors import MetadataFormatError
from metadata.ids import BookieId, LedgerId, is_bookie_id
from metadata.paths import LEDGERS
from metadata.repair.lifecycle import BookieLifecycle, Lifecycle, changed, may_become
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.repair.settings_store import RepairSettingsStore
from quire.assessment import next_step
from quire.cli.bookie.bookie_registry import NoSuchBookieError
from quire.cli.command_line import metadata_address
from quire.cli.ledger_reading import each_ledger
from quire.cli.output import Json, Output, describe_bytes
from quire.cli.quantities import describe_duration
from quire.copy_counts import names_bookie
from quire.drain_plan import DrainPlan, drain_targets
from quire.errors import CommandError, ExitCode

LEDGERS_NAMED_MAX: Final = 10
"""Maximum number of ledgers that a refusal lists."""


class StillNamedError(CommandError):
    """The bookie cannot be removed: ledgers name it, or their records cannot be read."""


@dataclass(slots=True)
class _Naming:
    """Ledgers that name a bookie."""

    ledgers: int = 0
    first: list[LedgerId] = field(default_factory=list)
    unreadable: list[LedgerId] = field(default_factory=list)


async def drain(arguments: argparse.Namespace, output: Output) -> int:
    """Begin to move everything away from a bookie, or print what that would move."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        states = LifecycleStore(cluster.store, cluster.rng)
        bookie_id = await _known(cluster, states, arguments.bookie)
        before = await states.get(bookie_id)
        if arguments.dry_run:
            changed(bookie_id, before, Lifecycle.DRAINING, arguments.reason, 0)
            return await _print_plan(cluster, states, bookie_id, output)
        record = await states.change(
            bookie_id, Lifecycle.DRAINING, arguments.reason, wall_clock_ms()
        )
    _print(bookie_id, record, before, output)
    if not output.as_json:
        output.remark("`quire repair status` shows what is left; `quire bookie undrain` ends it")
    return ExitCode.DONE


async def undrain(arguments: argparse.Namespace, output: Output) -> int:
    """Use a bookie again that is draining or drained."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        states = LifecycleStore(cluster.store, cluster.rng)
        bookie_id = await _known(cluster, states, arguments.bookie)
        before = await states.get(bookie_id)
        if before.state is Lifecycle.LOST:
            raise CommandError(
                f"bookie {bookie_id} is lost ({before.reason}), not drained: start it again, and "
                "it becomes active by itself",
                try_next="quire bookie run --data-dir DIR",
            )
        registration = cluster.directory.bookies.get(bookie_id)
        if registration is not None and registration.is_in_limbo:
            raise CommandError(
                f"bookie {bookie_id} is in limbo: it may have lost entries and fences, so it "
                "cannot be used again",
                try_next=next_step(bookie_id, Lifecycle.LIMBO),
            )
        if arguments.dry_run:
            changed(bookie_id, before, Lifecycle.ACTIVE, arguments.reason, 0)
            record = before
        else:
            record = await states.change(
                bookie_id, Lifecycle.ACTIVE, arguments.reason, wall_clock_ms()
            )
    _print(bookie_id, record, before, output)
    return ExitCode.DONE


async def remove(arguments: argparse.Namespace, output: Output) -> int:
    """Remove a bookie for ever, after a pass that shows that nothing names it."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        states = LifecycleStore(cluster.store, cluster.rng)
        bookie_id = await _known(cluster, states, arguments.bookie)
        before = await states.get(bookie_id)
        if arguments.dry_run:
            naming = await _naming(cluster, bookie_id, output)
            return _print_removal(bookie_id, before, naming, output)
        changed(bookie_id, before, Lifecycle.REMOVED, arguments.reason, 0)
        if before.state is not Lifecycle.REMOVED:
            _require_unnamed(bookie_id, await _naming(cluster, bookie_id, output))
        record = await states.change(
            bookie_id, Lifecycle.REMOVED, arguments.reason, wall_clock_ms()
        )
    _print(bookie_id, record, before, output)
    return ExitCode.DONE


async def _known(cluster: Cluster, states: LifecycleStore, wanted: str) -> BookieId:
    """Return the id of a bookie that was formatted or has a state. Raises NoSuchBookieError."""
    if not is_bookie_id(wanted):
        raise NoSuchBookieError(wanted)
    bookie_id = BookieId(wanted)
    if bookie_id not in cluster.directory.bookies and bookie_id not in await states.get_all():
        known = await cluster.cookies.list_bookie_ids()
        if bookie_id not in known:
            raise NoSuchBookieError(wanted)
    return bookie_id


async def _naming(cluster: Cluster, bookie_id: BookieId, output: Output) -> _Naming:
    """Find the ledgers that name a bookie, in a pass that sees every earlier write."""
    await cluster.store.children(LEDGERS, agreed=True)
    naming = _Naming()
    async for ledger_id, ledger in each_ledger(cluster, output):
        if isinstance(ledger, MetadataFormatError):
            naming.unreadable.append(ledger_id)
        elif names_bookie(ledger, bookie_id):
            naming.ledgers += 1
            if len(naming.first) < LEDGERS_NAMED_MAX:
                naming.first.append(ledger_id)
    return naming


def _require_unnamed(bookie_id: BookieId, naming: _Naming) -> None:
    """Raise StillNamedError unless no ledger names the bookie, for certain."""
    if naming.ledgers:
        shown = ", ".join(map(str, naming.first))
        raise StillNamedError(
            f"bookie {bookie_id} cannot be removed: ledgers that name it: {naming.ledgers}, for "
            f"example {shown}; nothing was changed",
            try_next="quire repair status   (shows what is left, and what is blocked)",
        )
    if naming.unreadable:
        raise StillNamedError(
            f"bookie {bookie_id} cannot be removed: ledgers that cannot be read and may name it: "
            f"{len(naming.unreadable)}, for example {naming.unreadable[0]}; nothing was changed",
            try_next="quire metadata check",
        )


def _print_removal(
    bookie_id: BookieId, before: BookieLifecycle, naming: _Naming, output: Output
) -> int:
    is_allowed = may_become(before.state, Lifecycle.REMOVED)
    is_removable = is_allowed and not naming.ledgers and not naming.unreadable
    row: dict[str, Json] = {
        "id": bookie_id,
        "lifecycle": str(before.state),
        "ledgers_naming_it": naming.ledgers,
        "first_ledgers": list(naming.first),
        "ledgers_not_read": len(naming.unreadable),
        "is_removable": is_removable,
    }
    output.record(row)
    return ExitCode.DONE if is_removable else ExitCode.FINDINGS


async def _print_plan(
    cluster: Cluster, states: LifecycleStore, bookie_id: BookieId, output: Output
) -> int:
    up = dict(cluster.directory.bookies)
    targets = drain_targets(bookie_id, up, await states.get_all())
    plan = DrainPlan(bookie_id, targets, up)
    unreadable = 0
    async for _, ledger in each_ledger(cluster, output):
        if isinstance(ledger, MetadataFormatError):
            unreadable += 1
        else:
            plan.add(ledger)
    settings = await RepairSettingsStore(cluster.store, cluster.rng).get()
    ceilings = (settings.bytes_per_s, settings.bookie_bytes_per_s, settings.source_bytes_per_s)
    rates = [each for each in ceilings if each]
    estimate_s = plan.size_bytes / min(rates) if rates else None
    free_bytes = sum(up[each].free_bytes for each in targets)
    row: dict[str, Json] = {
        "id": bookie_id,
        "ledgers": plan.ledgers,
        "open_ledgers": plan.open_ledgers,
        "ledgers_not_read": unreadable,
        "bytes": plan.size_bytes,
        "targets": list(targets),
        "targets_free_bytes": free_bytes,
        "estimate_s": None if estimate_s is None else round(estimate_s),
        "blocked_ledgers": plan.blocked.total(),
        "blocked": dict(plan.blocked.most_common()),
    }
    if not output.as_json:
        row["bytes"] = describe_bytes(plan.size_bytes)
        row["targets_free_bytes"] = describe_bytes(free_bytes)
        row["estimate"] = "-" if estimate_s is None else describe_duration(estimate_s)
        del row["estimate_s"]
    output.record(row)
    if plan.size_bytes > free_bytes:
        output.remark("the targets have less free space than the copies need: add bookies first")
    is_blocked = bool(plan.blocked) or plan.size_bytes > free_bytes
    return ExitCode.FINDINGS if is_blocked or unreadable else ExitCode.DONE


def _print(
    bookie_id: BookieId, record: BookieLifecycle, before: BookieLifecycle, output: Output
) -> None:
    output.record(
        {
            "id": bookie_id,
            "lifecycle": str(record.state),
            "since_ms": record.since_ms,
            "reason": record.reason,
            "changed": record != before,
        }
    )
