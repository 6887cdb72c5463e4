"""Possible next steps of the members of an in-sync ledger: returning, joining, catching up.

Leaves failures to `steps`. `InSyncMembers` decides which member is behind, in which fragment, and
which place a copy takes; `protocol.copy` decides what a swap stores.

At any moment, a live bookie may answer again, or become ready as a member where there is a place.
None of these steps is a fault, so in a world without steps left, every bookie that can return has
returned. A copy consists of a step that stores the target as incoming, one for each entry, in
order, and one that stores it as a member. The stored metadata is then on its way to the writer.

Source: protocol rules 9.1, 11.2 and 11.3.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ledger_client.protocol.append import AppendProtocol
from ledger_client.protocol.copy import CopyPlan, CopyState, plan_copy
from ledger_client.writing.in_sync_members import next_behind, replaced_by
from metadata.ids import UpdateToken
from metadata.ledgers.ledger_metadata import LedgerMetadata
from tests.model.bookies import NOT_HELD
from tests.model.in_sync_rules import check_members
from tests.model.labels import Label
from tests.model.protocols import Told
from tests.model.words import NAMES, WRITER, Request, Seen, token_of
from tests.model.world import Draft, Pools, World

if TYPE_CHECKING:
    from tests.model.steps import Steps

COPIER = 9
"""Number of the copier in tokens."""


class MemberSteps:
    """Steps of members, as the shell of a live writer takes them."""

    def __init__(self, steps: "Steps", pools: Pools) -> None:
        self._steps = steps
        self._pools = pools

    def after(self, world: World) -> Iterator[tuple[Label, World]]:
        """Take every step that is possible and changes the world."""
        writer = self._pools.writers.states[world.actors[WRITER]]
        assert writer is not None
        yield from self._returns(world, writer)
        yield from self._joins(world, writer)
        plan = self._pools.copies.values[world.copy]
        if plan is None:
            yield from self._begins(world, writer)
        else:
            yield self._goes_on(world, plan)

    def _returns(self, world: World, writer: AppendProtocol) -> Iterator[tuple[Label, World]]:
        for name in writer.parked:
            bookie = NAMES.index(name)
            if world.lost >> bookie & 1:
                continue
            told = Told("returned", (bookie,))
            yield from self._tell(world, told, "{} answers again", name)

    def _joins(self, world: World, writer: AppendProtocol) -> Iterator[tuple[Label, World]]:
        scope, members = self._pools.scope, writer.metadata.last_fragment.ensemble
        if len(members) == scope.quorum.ensemble_size and not writer.parked:
            return
        for bookie, name in enumerate(NAMES[: scope.bookies]):
            if name not in members and not world.lost >> bookie & 1:
                told = Told("ready", (bookie, writer._version))
                yield from self._tell(world, told, "{} is ready to be a member", name)

    def _tell(
        self, world: World, told: Told, text: str, *shown: object
    ) -> Iterator[tuple[Label, World]]:
        draft = self._steps.begin(world, text, *shown)
        draft.tell(WRITER, told)
        after = draft.freeze()
        if after != world:
            yield self._steps.label, after

    # -- catching up -------------------------------------------------------------------------------

    def _begins(self, world: World, writer: AppendProtocol) -> Iterator[tuple[Label, World]]:
        """Start a copy to a member that is behind, if the copy can end."""
        behind = next_behind(writer.metadata, lambda _first, target: target not in writer.parked)
        if behind is None:
            return
        target, fragment = behind
        stored = self._pools.metadata.values[world.metadata]
        replaced = replaced_by(writer.metadata, fragment)
        plan = plan_copy(stored, fragment.first_entry_id, target, replaced)
        if not isinstance(plan, CopyPlan) or not self._is_possible(world, plan):
            return
        first = fragment.first_entry_id
        draft = self._steps.begin(world, "a copy to {} begins, of the one at {}", target, first)
        draft.copy = self._pools.copies.number(plan)
        if plan.standing(stored) is CopyState.UNMARKED:
            self._store(draft, plan.marked(stored, self._token(world)))
        yield self._steps.label, draft.freeze()

    def _goes_on(self, world: World, plan: CopyPlan) -> tuple[Label, World]:
        """Copy the first entry that the target lacks, store it as a member, or abandon the copy."""
        if not self._is_possible(world, plan):
            return self._give_up(world, plan)
        target = NAMES.index(plan.target)
        missing = next(self._missing(world, plan), None)
        if missing is None:
            return self._name(world, plan)
        draft = self._steps.begin(world, "entry {} is copied to {}", missing, plan.target)
        self._steps.ask(
            draft, Request("back", False, WRITER, target, missing, missing, missing - 1)
        )
        return self._steps.label, draft.freeze()

    def _name(self, world: World, plan: CopyPlan) -> tuple[Label, World]:
        first, now = plan.first_entry_id, self._pools.metadata.values[world.metadata]
        standing = plan.standing(now)
        if standing not in (CopyState.MARKED, CopyState.NAMED):
            return self._give_up(world, plan)
        draft = self._steps.begin(world, "{} is a member of the one at {}", plan.target, first)
        draft.copy = 0
        if standing is CopyState.MARKED:
            changed = plan.named(now, self._token(world))
            check_members(now, changed, is_copy=True)
            self._store(draft, changed)
        draft.post(Seen(draft.metadata, draft.version))
        return self._steps.label, draft.freeze()

    def _give_up(self, world: World, plan: CopyPlan) -> tuple[Label, World]:
        draft = self._steps.begin(world, "the copy to {} is given up", plan.target)
        draft.copy = 0
        unmarked = plan.unmarked(draft.stored, self._token(world))
        if unmarked is not None:
            self._store(draft, unmarked)
        return self._steps.label, draft.freeze()

    def _missing(self, world: World, plan: CopyPlan) -> Iterator[int]:
        """Yield the entries that the target must hold and lacks."""
        target = NAMES.index(plan.target)
        for first, last in plan.ranges():
            for number in range(first, last + 1):
                if not self._holds(world, target, number):
                    yield number

    def _is_possible(self, world: World, plan: CopyPlan) -> bool:
        """Return whether the target lives, and for each entry a member that holds it."""
        if world.lost >> NAMES.index(plan.target) & 1:
            return False
        sources = [NAMES.index(name) for name in plan.copies.ensemble]
        live = [source for source in sources if not world.lost >> source & 1]
        missing = self._missing(world, plan)
        return all(any(self._holds(world, source, each) for source in live) for each in missing)

    def _holds(self, world: World, bookie: int, each: int) -> bool:
        return self._pools.bookies.states[world.bookies[bookie]].held[each] != NOT_HELD

    def _store(self, draft: Draft, changed: LedgerMetadata) -> None:
        draft.metadata = self._pools.metadata.number(changed)
        draft.version += 1

    def _token(self, world: World) -> UpdateToken:
        return token_of(COPIER, 3, world.version)
