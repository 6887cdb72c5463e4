"""Changes of bookies by operators, with the checks before them, and what draining moves.

Invariants: bookies are removed only after a pass over all ledgers, which began after they refused
entries, found that nothing names them, and never while a restore of the metadata is not accepted;
if one of several cannot be changed, none is.

Source: protocol rules 9.5, 9.8 and 10.6; docs/repair.md.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from ledger_client.cluster_access import Cluster, wall_clock_ms
from metadata.errors import MetadataFormatError, RestoreUnacceptedError
from metadata.ids import BookieId, LedgerId, is_bookie_id
from metadata.paths import LEDGERS, bookie_path
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import BookieLifecycle, Lifecycle, changed, may_be_removed
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.repair.settings_store import RepairSettingsStore
from metadata.restore.restore_record import is_unaccepted
from metadata.store.interface import find
from quire.errors import CommandError, ExitCode
from quire.identity.client_file import ClientFile
from quire.operate.admin_api import AdminApiError, AdminRefusedError, post_json
from quire.operate.assessment import next_step
from quire.operate.drain_plan import DrainPlan, drain_targets
from quire.operate.fields import Json
from quire.operate.ledger_pass import EachLedger

LEDGERS_NAMED_MAX: Final = 10
"""Maximum number of ledgers that a refusal lists."""

REMOVAL: Final = "it is removed if no ledger names it"
"""Reason for which a lost bookie is drained during the pass of its removal."""

Records = Mapping[BookieId, BookieLifecycle]


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


class StillNamedError(CommandError):
    """The bookie cannot be removed: ledgers name it, or their records cannot be read."""


@dataclass(slots=True)
class Naming:
    """Ledgers that name a bookie."""

    ledgers: int = 0
    first: list[LedgerId] = field(default_factory=list)
    unreadable: list[LedgerId] = field(default_factory=list)

    def may_be_removed(self, state: Lifecycle) -> bool:
        """Return whether a bookie in this state can be removed now."""
        return may_be_removed(state) and not self.ledgers and not self.unreadable


@dataclass(slots=True)
class DrainForecast:
    """What draining bookies would move, and how long the copies take."""

    plan: DrainPlan
    unreadable: int = 0
    """Ledgers whose records cannot be read."""
    estimate_s: float | None = None
    """Time for the copies at the current limits; None if there is no limit."""

    @property
    def is_clear(self) -> bool:
        """Whether nothing blocks it."""
        is_blocked = bool(self.plan.blocked) or any(load.passes_mark for load in self.plan.loads())
        return not is_blocked and not self.unreadable


async def records_of(cluster: Cluster, wanted: Sequence[str]) -> dict[BookieId, BookieLifecycle]:
    """Return the states of bookies, each of which was formatted or has a state. Raises
    NoSuchBookieError.
    """
    states = LifecycleStore(cluster.store, cluster.rng)
    known = [await _known(cluster, states, name) for name in dict.fromkeys(wanted)]
    return {bookie: await states.get(bookie) for bookie in known}


def require_allowed(cluster: Cluster, before: Records, to: Lifecycle, reason: str) -> None:
    """Raise InvalidLifecycleChangeError or CommandError if one of the bookies cannot change so."""
    for bookie_id, record in before.items():
        if to is Lifecycle.ACTIVE:
            _require_usable(cluster, bookie_id, record)
        changed(bookie_id, record, to, reason, 0)


async def change_all(cluster: Cluster, before: Records, to: Lifecycle, reason: str) -> Records:
    """Change bookies, after `require_allowed`; return their new states."""
    now_ms, states = wall_clock_ms(), LifecycleStore(cluster.store, cluster.rng)
    return {bookie: await states.change(bookie, to, reason, now_ms) for bookie in before}


async def remove_all(
    cluster: Cluster, before: Records, reason: str, ledgers: EachLedger
) -> Records:
    """Remove bookies for ever, after a pass that shows that nothing names them; return their new
    states. A lost bookie is drained during the pass, so that it takes no entries if it is back, and
    lost again if it is not removed (rule 9.8).

    Raises StillNamedError, InvalidLifecycleChangeError, RestoreUnacceptedError, CommandError for a
    lost bookie that is back.
    """
    for bookie_id, record in before.items():
        if not may_be_removed(record.state):
            changed(bookie_id, record, Lifecycle.REMOVED, reason, 0)
    if all(lifecycle.state is Lifecycle.REMOVED for lifecycle in before.values()):
        return before
    if await is_unaccepted(cluster.store):
        raise RestoreUnacceptedError(cluster.store.address)
    lost = {bookie: record for bookie, record in before.items() if record.state is Lifecycle.LOST}
    await _require_away(cluster, lost)
    try:
        await change_all(cluster, lost, Lifecycle.DRAINED, REMOVAL)
        _require_unnamed(await naming_of(cluster, before, ledgers))
        await _require_away(cluster, lost)
    except BaseException:  # also when the command is interrupted
        states = LifecycleStore(cluster.store, cluster.rng)
        for bookie, record in lost.items():
            if (await states.get(bookie)).state is Lifecycle.DRAINED:
                await states.change(bookie, Lifecycle.LOST, record.reason, record.since_ms)
        raise
    return await change_all(cluster, before, Lifecycle.REMOVED, reason)


async def naming_of(
    cluster: Cluster, bookies: Collection[BookieId], ledgers: EachLedger
) -> dict[BookieId, Naming]:
    """Find the ledgers that name bookies, in a pass that sees every earlier write. The iteration of
    `ledgers` must not have begun.
    """
    await cluster.store.children(LEDGERS, agreed=True)
    namings = {bookie: Naming() for bookie in bookies}
    async for ledger_id, ledger in ledgers:
        for bookie_id, naming in namings.items():
            if isinstance(ledger, MetadataFormatError):
                naming.unreadable.append(ledger_id)
            elif ledger.names(bookie_id):
                naming.ledgers += 1
                if len(naming.first) < LEDGERS_NAMED_MAX:
                    naming.first.append(ledger_id)
    return namings


async def drain_forecast(
    cluster: Cluster, bookies: tuple[BookieId, ...], ledgers: EachLedger
) -> DrainForecast:
    """Return what draining bookies would move; nothing is changed."""
    up = dict(cluster.directory.bookies)
    states = await LifecycleStore(cluster.store, cluster.rng).get_all()
    forecast = DrainForecast(DrainPlan(bookies, drain_targets(bookies, up, states), up))
    async for _, ledger in ledgers:
        if isinstance(ledger, MetadataFormatError):
            forecast.unreadable += 1
        else:
            forecast.plan.add(ledger)
    forecast.estimate_s = await _estimate_s(cluster, forecast.plan.size_bytes)
    return forecast


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


async def _require_away(cluster: Cluster, lost: Collection[BookieId]) -> None:
    """Raise CommandError if a lost bookie is registered: it is about to be active again."""
    for bookie_id in lost:
        if await find(cluster.store, bookie_path(bookie_id)) is not None:
            raise CommandError(
                f"bookie {bookie_id} cannot be removed: it was lost and is back; nothing was "
                "changed: drain it first",
                try_next=f"quire bookie drain {bookie_id}",
            )


def _require_unnamed(namings: Mapping[BookieId, Naming]) -> None:
    """Raise StillNamedError unless no ledger names the bookies, for certain."""
    for bookie_id, naming in namings.items():
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


async def _estimate_s(cluster: Cluster, size_bytes: int) -> float | None:
    """Return the time for copies at the current limits; None if there is no limit."""
    settings = await RepairSettingsStore(cluster.store, cluster.rng).get()
    ceilings = (settings.bytes_per_s, settings.bookie_bytes_per_s, settings.source_bytes_per_s)
    rates = [ceiling for ceiling in ceilings if ceiling]
    return size_bytes / min(rates) if rates else None


async def request_change(
    bookie_id: str,
    registration: BookieRegistration | None,
    identity: ClientFile,
    route: str,
    body: Mapping[str, bool],
) -> Mapping[str, Json]:
    """Ask a bookie's admin server for a change; return its answer. Raises BookieDownError if it is
    not up or does not answer, CommandError if it refuses.
    """
    if registration is None:
        raise BookieDownError(
            f"bookie {bookie_id} is not up: only a running bookie can be changed",
            try_next="quire bookie run --data-dir DIR",
        )
    try:
        answer = await post_json(f"{registration.admin_url}/api/v1/{route}", body, identity)
    except AdminRefusedError as error:
        raise CommandError(f"bookie {bookie_id} was not changed: {error}") from error
    except AdminApiError as error:
        raise BookieDownError(
            f"bookie {bookie_id} was not changed: {error}",
            try_next="run this on the bookie's machine, or start the bookie with an --admin-host "
            "that can be reached from here",
        ) from error
    return answer if isinstance(answer, dict) else {}
