"""`quire bookie drain|undrain|remove`: takes bookies out of service, or back into it.

Leaves the states and their changes to `metadata.repair.lifecycle`, moving the copies to repair, and
what would be moved to `quire.drain_plan`.

Invariants: bookies are removed only after a pass over all ledgers, which began after the command
did, found that nothing names them; if one of several cannot be changed, none is; a dry run changes
nothing.

Source: protocol rule 9.1; docs/repair.md.
"""

import argparse
from collections.abc import Collection, Mapping, Sequence
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
from quire.cli.output import Json, Output
from quire.copy_counts import names_bookie
from quire.drain_plan import DrainPlan, TargetLoad, drain_targets
from quire.errors import CommandError, ExitCode

LEDGERS_NAMED_MAX: Final = 10
"""Maximum number of ledgers that a refusal lists."""
REMOVAL_COLUMNS: Final = ("id", "lifecycle", "ledgers_naming_it", "first_ledgers", "is_removable")

Records = Mapping[BookieId, BookieLifecycle]


class StillNamedError(CommandError):
    """The bookie cannot be removed: ledgers name it, or their records cannot be read."""


@dataclass(slots=True)
class _Naming:
    """Ledgers that name a bookie."""

    ledgers: int = 0
    first: list[LedgerId] = field(default_factory=list)
    unreadable: list[LedgerId] = field(default_factory=list)


async def drain(arguments: argparse.Namespace, output: Output) -> int:
    """Begin to move everything away from bookies, or print what that would move."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        states = LifecycleStore(cluster.store, cluster.rng)
        before = await _records_of(cluster, states, arguments.bookies)
        for bookie_id, record in before.items():
            changed(bookie_id, record, Lifecycle.DRAINING, arguments.reason, 0)
        if arguments.dry_run:
            return await _print_plan(cluster, states, tuple(before), output)
        await _change_all(states, before, Lifecycle.DRAINING, arguments.reason, output)
    if not output.as_json:
        output.remark("`quire repair status` shows what is left; `quire bookie undrain` ends it")
    return ExitCode.DONE


async def undrain(arguments: argparse.Namespace, output: Output) -> int:
    """Use bookies again that are draining or drained."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        states = LifecycleStore(cluster.store, cluster.rng)
        before = await _records_of(cluster, states, arguments.bookies)
        for bookie_id, record in before.items():
            _require_usable(cluster, bookie_id, record)
            changed(bookie_id, record, Lifecycle.ACTIVE, arguments.reason, 0)
        if arguments.dry_run:
            _print(before, before, output)
        else:
            await _change_all(states, before, Lifecycle.ACTIVE, arguments.reason, output)
    return ExitCode.DONE


async def remove(arguments: argparse.Namespace, output: Output) -> int:
    """Remove bookies for ever, after a pass that shows that nothing names them."""
    async with open_cluster(metadata_address(arguments)) as cluster:
        states = LifecycleStore(cluster.store, cluster.rng)
        before = await _records_of(cluster, states, arguments.bookies)
        if arguments.dry_run:
            return _print_removal(before, await _naming(cluster, before, output), output)
        for bookie_id, record in before.items():
            changed(bookie_id, record, Lifecycle.REMOVED, arguments.reason, 0)
        if any(each.state is not Lifecycle.REMOVED for each in before.values()):
            _require_unnamed(await _naming(cluster, before, output))
        await _change_all(states, before, Lifecycle.REMOVED, arguments.reason, output)
    return ExitCode.DONE


async def _change_all(
    states: LifecycleStore, before: Records, to: Lifecycle, reason: str, output: Output
) -> None:
    now_ms = wall_clock_ms()
    after = {each: await states.change(each, to, reason, now_ms) for each in before}
    _print(after, before, output)


def _require_usable(cluster: Cluster, bookie_id: BookieId, record: BookieLifecycle) -> None:
    """Raise CommandError if a bookie cannot be used again by a command."""
    if record.state is Lifecycle.LOST:
        raise CommandError(
            f"bookie {bookie_id} is lost ({record.reason}), not drained: start it again, and "
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


async def _records_of(
    cluster: Cluster, states: LifecycleStore, wanted: Sequence[str]
) -> dict[BookieId, BookieLifecycle]:
    """Return the states of bookies, each of which was formatted or has a state. Raises
    NoSuchBookieError.
    """
    known = [await _known(cluster, states, each) for each in dict.fromkeys(wanted)]
    return {each: await states.get(each) for each in known}


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


async def _naming(
    cluster: Cluster, bookies: Collection[BookieId], output: Output
) -> dict[BookieId, _Naming]:
    """Find the ledgers that name bookies, in a pass that sees every earlier write."""
    await cluster.store.children(LEDGERS, agreed=True)
    found = {each: _Naming() for each in bookies}
    async for ledger_id, ledger in each_ledger(cluster, output):
        for bookie_id, naming in found.items():
            if isinstance(ledger, MetadataFormatError):
                naming.unreadable.append(ledger_id)
            elif names_bookie(ledger, bookie_id):
                naming.ledgers += 1
                if len(naming.first) < LEDGERS_NAMED_MAX:
                    naming.first.append(ledger_id)
    return found


def _require_unnamed(found: Mapping[BookieId, _Naming]) -> None:
    """Raise StillNamedError unless no ledger names the bookies, for certain."""
    for bookie_id, naming in found.items():
        if naming.ledgers:
            shown = ", ".join(map(str, naming.first))
            raise StillNamedError(
                f"bookie {bookie_id} cannot be removed: ledgers that name it: {naming.ledgers}, "
                f"for example {shown}; nothing was changed",
                try_next="quire repair status   (shows what is left, and what is blocked)",
            )
        if naming.unreadable:
            raise StillNamedError(
                f"bookie {bookie_id} cannot be removed: ledgers that cannot be read and may name "
                f"it: {len(naming.unreadable)}, for example {naming.unreadable[0]}; nothing was "
                "changed",
                try_next="quire metadata check",
            )


def _print_removal(before: Records, found: Mapping[BookieId, _Naming], output: Output) -> int:
    are_removable = True
    with output.lines(*REMOVAL_COLUMNS) as lines:
        for bookie_id, record in before.items():
            naming = found[bookie_id]
            is_allowed = may_become(record.state, Lifecycle.REMOVED)
            is_removable = is_allowed and not naming.ledgers and not naming.unreadable
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


async def _print_plan(
    cluster: Cluster, states: LifecycleStore, bookies: tuple[BookieId, ...], output: Output
) -> int:
    up = dict(cluster.directory.bookies)
    plan = DrainPlan(bookies, drain_targets(bookies, up, await states.get_all()), up)
    unreadable = 0
    async for _, ledger in each_ledger(cluster, output):
        if isinstance(ledger, MetadataFormatError):
            unreadable += 1
        else:
            plan.add(ledger)
    estimate_s = await _estimate_s(cluster, plan.size_bytes)
    _show_plan(plan, unreadable, estimate_s, output)
    is_blocked = bool(plan.blocked) or any(each.passes_mark for each in plan.loads())
    return ExitCode.FINDINGS if is_blocked or unreadable else ExitCode.DONE


async def _estimate_s(cluster: Cluster, size_bytes: int) -> float | None:
    """Return the time for copies at the current limits; None if there is no limit."""
    settings = await RepairSettingsStore(cluster.store, cluster.rng).get()
    ceilings = (settings.bytes_per_s, settings.bookie_bytes_per_s, settings.source_bytes_per_s)
    rates = [each for each in ceilings if each]
    return size_bytes / min(rates) if rates else None


def _show_plan(plan: DrainPlan, unreadable: int, estimate_s: float | None, output: Output) -> None:
    loads = plan.loads()
    full = [each.bookie_id for each in loads if each.passes_mark]
    row: dict[str, Json] = {
        "ids": list(plan.bookies),
        "ledgers": plan.ledgers,
        "open_ledgers": plan.open_ledgers,
        "ledgers_not_read": unreadable,
        "bytes": plan.size_bytes,
        "estimate_s": None if estimate_s is None else round(estimate_s),
        "blocked_ledgers": plan.blocked.total(),
        "blocked": dict(plan.blocked.most_common()),
        "targets_that_would_be_full": list(full),
    }
    if output.as_json:
        output.record(row | {"targets": [_load_row(each) for each in loads]})
        return
    output.record(row)
    output.line("")
    with output.listing("target", "bytes", "free_bytes", "would_be_full") as listing:
        for each in loads:
            listing.add(_load_row(each))
    if full:
        output.remark("disks of targets would be too full: add bookies first")


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
