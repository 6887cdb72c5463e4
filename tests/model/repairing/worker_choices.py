"""Choices of a worker: the standings, the target of a copy, and whether the copy can end.

Leaves the needs to `quire.repair.needs` and the plan to `ledger_client.protocol.copy`, which
decide.
"""

from ledger_client.protocol.copy import CopyPlan, plan_copy
from metadata.ids import BookieId
from metadata.repair.lifecycle import Lifecycle
from quire.repair.needs import Need
from quire.repair.standing import Standing, Standings, standing_of
from tests.model.repairing.words import RepairWorld, mask_of, number_of
from tests.model.words import NAMES


def stored_standings(world: RepairWorld) -> tuple[Standing, ...]:
    """Return the standings that a worker reads when it begins a job."""
    return tuple(
        standing_of(state, is_up=bookie.is_registered)
        for state, bookie in zip(world.states, world.bookies, strict=True)
    )


def standings_from(
    found: tuple[Standing, ...], world: RepairWorld, *, needs_registered: bool
) -> Standings:
    """Return standings as the production code takes them."""
    bad = {NAMES[n]: standing for n, standing in enumerate(found) if standing is not Standing.GOOD}
    registered = {NAMES[n] for n, b in enumerate(world.bookies) if b.is_registered}
    return Standings(bad, registered=registered if needs_registered else None)


def current_standings(world: RepairWorld) -> Standings:
    """Return the standings now."""
    return standings_from(stored_standings(world), world, needs_registered=False)


def copy_target(world: RepairWorld, need: Need, standings: Standings) -> CopyPlan | None:
    """Plan the copy for a need, to a marked bookie or else the first that can be chosen."""
    assert world.ledger is not None
    fragment = world.ledger.fragment_of(need.first_entry_id)
    others = [name for name in NAMES[: len(world.bookies)] if name not in fragment.incoming]
    for target in (*fragment.incoming, *others):
        if target in fragment.ensemble or not _can_be_chosen(world, target, standings):
            continue
        plan = plan_copy(world.ledger, need.first_entry_id, target, need.replaces)
        if isinstance(plan, CopyPlan):
            return plan
    return None


def _can_be_chosen(world: RepairWorld, target: BookieId, standings: Standings) -> bool:
    bookie = world.bookies[number_of(target)]
    is_writable = bookie.known.may_store
    return bookie.is_registered and is_writable and standings.of(target) is Standing.GOOD


def wanted(plan: CopyPlan) -> int:
    """Return the entries that the target must hold, as a mask."""
    return sum(mask_of(first, last) for first, last in plan.ranges())


def is_possible(world: RepairWorld, plan: CopyPlan, copied: int = 0) -> bool:
    """Return whether the target accepts adds, and each entry that is left has a source."""
    target = world.bookies[number_of(plan.target)]
    left = wanted(plan) & ~copied
    if left and not accepts(world, plan.target):
        return False
    return not target.is_dead and left & ~readable(world, plan) == 0


def accepts(world: RepairWorld, target: BookieId) -> bool:
    """Return whether a bookie accepts recovery adds (rule 9.8)."""
    bookie = world.bookies[number_of(target)]
    return bookie.is_up and bookie.known is not Lifecycle.DRAINED


def readable(world: RepairWorld, plan: CopyPlan) -> int:
    """Return the entries that some member returns, as a mask."""
    if world.ledger is None:
        return 0
    members = world.ledger.fragment_of(plan.first_entry_id).ensemble
    held = 0
    for name in members:
        bookie = world.bookies[number_of(name)]
        held |= bookie.held if bookie.is_up else 0
    return held
