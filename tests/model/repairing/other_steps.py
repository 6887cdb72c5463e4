"""Steps of bookies, the auditor, operators, collectors and the ledger's writer.

Leaves the table of states to `metadata.repair.lifecycle` and the collector's decision to
`bookie.server.collector`: both are the production code.

Steps that are no faults happen at last: a bookie that can return has returned and has read its
state, in a world without steps left.

Source: protocol rules 5.1, 9.5, 9.6, 9.8 and 10.1.
"""

from collections.abc import Iterator

from bookie.server.collector import may_remove
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import Fragment, LedgerMetadata, LedgerState
from metadata.repair.lifecycle import Lifecycle, may_become
from tests.model.labels import Label
from tests.model.repairing.rules import check_release
from tests.model.repairing.words import TOKEN, Bookie, RepairScope, RepairWorld
from tests.model.repairing.worker_steps import Step, spent, with_ledger
from tests.model.words import NAMES, ViolationError

(
    PARTITION,
    CRASH,
    DEATH,
    _KILL,
    _ABANDON,
    DRAIN,
    UNDRAIN,
    REMOVE,
    DELETE,
    CHANGE,
    CLOSE,
    RECOVERY,
) = range(12)


def with_bookie(world: RepairWorld, number: int, bookie: Bookie) -> RepairWorld:
    """Return the world with another state of a bookie."""
    bookies = world.bookies
    return world._replace(bookies=(*bookies[:number], bookie, *bookies[number + 1 :]))


def with_state(world: RepairWorld, number: int, state: Lifecycle) -> RepairWorld:
    """Return the world with another stored state of a bookie."""
    assert may_become(world.states[number], state)
    states = world.states
    return world._replace(states=(*states[:number], state, *states[number + 1 :]))


class OtherSteps:
    """Steps of everything but the workers."""

    def __init__(self, scope: RepairScope) -> None:
        self._scope = scope

    def after(self, world: RepairWorld) -> Iterator[Step]:
        """Take every step that is possible."""
        for number, bookie in enumerate(world.bookies):
            yield from self._of_bookie(world, number, bookie)
            yield from self._of_collector(world, number, bookie)
            yield from self._of_auditor(world, number, bookie)
        for number in self._scope.mortals:
            yield from self._faults(world, number, world.bookies[number])
            yield from self._of_operator(world, number)
        yield from self._of_ledger(world)

    # -- bookies -----------------------------------------------------------------------------------

    def _faults(self, world: RepairWorld, number: int, bookie: Bookie) -> Iterator[Step]:
        name = NAMES[number]
        if not bookie.is_registered:
            return
        away = bookie._replace(is_registered=False)
        for fault, text, after in (
            (PARTITION, "{} loses its session", away),
            (CRASH, "{} stops", away._replace(is_up=False, is_releasing=False)),
            (
                DEATH,
                "{} is gone for good",
                away._replace(is_up=False, is_dead=True, held=0, is_releasing=False),
            ),
        ):
            if world.budget[fault]:
                budget = spent(world, fault)
                then = with_bookie(world, number, after)._replace(budget=budget)
                yield Label(text, (name,), is_fault=True), then

    def _of_bookie(self, world: RepairWorld, number: int, bookie: Bookie) -> Iterator[Step]:
        name, state = NAMES[number], world.states[number]
        if bookie.is_dead:
            return
        is_removed = state is Lifecycle.REMOVED
        gone = Bookie(0, is_up=False, is_registered=False, is_dead=True)
        if not bookie.is_up:  # it reads its state before it serves
            back = bookie._replace(is_up=True, is_registered=True, known=state)
            yield (
                Label("{} starts", (name,)),
                with_bookie(world, number, gone if is_removed else back),
            )
        elif not bookie.is_registered:
            back = bookie._replace(is_registered=True)
            yield Label("{} has a session again", (name,)), with_bookie(world, number, back)
        elif bookie.known is not state:
            known = gone if is_removed else bookie._replace(known=state)
            yield Label("{} reads that it is {}", (name, state)), with_bookie(world, number, known)

    def _of_collector(self, world: RepairWorld, number: int, bookie: Bookie) -> Iterator[Step]:
        name = NAMES[number]
        if not bookie.is_up:
            return
        if bookie.is_releasing:
            check_release(world, number)
            after = bookie._replace(held=0, is_releasing=False)
            yield Label("{} removes the ledger", (name,)), with_bookie(world, number, after)
        elif bookie.held and bookie.is_registered and may_remove(world.ledger, name):
            after = bookie._replace(is_releasing=True)
            yield (
                Label("{} reads that it may remove it", (name,)),
                with_bookie(world, number, after),
            )

    # -- the auditor and operators -----------------------------------------------------------------

    def _of_auditor(self, world: RepairWorld, number: int, bookie: Bookie) -> Iterator[Step]:
        name, state, bit = NAMES[number], world.states[number], 1 << number
        if state is Lifecycle.ACTIVE and not bookie.is_registered:
            yield Label("{} is lost", (name,)), with_state(world, number, Lifecycle.LOST)
        elif state is Lifecycle.LOST and bookie.is_registered:
            yield Label("{} is active again", (name,)), with_state(world, number, Lifecycle.ACTIVE)
        if world.passed & bit:
            after = world._replace(passed=world.passed & ~bit)
            if may_become(state, Lifecycle.DRAINED):
                after = with_state(after, number, Lifecycle.DRAINED)
            yield Label("{} is drained", (name,)), after
        elif state is Lifecycle.DRAINING and not self._names(world, number):
            after = world._replace(passed=world.passed | bit)
            yield Label("a pass finds nothing that names {}", (name,)), after

    def _of_operator(self, world: RepairWorld, number: int) -> Iterator[Step]:
        name, state, bit = NAMES[number], world.states[number], 1 << number
        if world.budget[DRAIN] and state in (Lifecycle.ACTIVE, Lifecycle.LOST):
            after = with_state(world, number, Lifecycle.DRAINING)
            after = after._replace(budget=spent(world, DRAIN))
            yield Label("an operator drains {}", (name,), is_fault=True), after
        if world.budget[UNDRAIN] and state in (Lifecycle.DRAINING, Lifecycle.DRAINED):
            after = with_state(world, number, Lifecycle.ACTIVE)
            after = after._replace(budget=spent(world, UNDRAIN))
            yield Label("an operator undrains {}", (name,), is_fault=True), after
        if world.proven & bit:
            after = world._replace(proven=world.proven & ~bit)
            if may_become(state, Lifecycle.REMOVED):
                after = with_state(after, number, Lifecycle.REMOVED)
            yield Label("{} is removed", (name,)), after
        elif (
            world.budget[REMOVE]
            and state is Lifecycle.LOST
            and not world.bookies[number].is_registered
        ):
            after = with_state(world, number, Lifecycle.DRAINED)
            yield Label("an operator begins to remove {}", (name,), is_fault=True), after
        elif world.budget[REMOVE] and self._may_prove(world, number):
            after = world._replace(proven=world.proven | bit, budget=spent(world, REMOVE))
            yield Label("an operator's pass finds {} unnamed", (name,), is_fault=True), after

    def _may_prove(self, world: RepairWorld, number: int) -> bool:
        is_allowed = may_become(world.states[number], Lifecycle.REMOVED)
        return is_allowed and not self._names(world, number)

    def _names(self, world: RepairWorld, number: int) -> bool:
        return world.ledger is not None and world.ledger.names(NAMES[number])

    # -- the ledger --------------------------------------------------------------------------------

    def _of_ledger(self, world: RepairWorld) -> Iterator[Step]:
        ledger = world.ledger
        if ledger is None:
            return
        if world.budget[DELETE]:
            after = with_ledger(world, None)._replace(budget=spent(world, DELETE))
            yield Label("the ledger is deleted", is_fault=True), after
        if ledger.state is LedgerState.IN_RECOVERY:
            yield self._recovered(world, ledger)
        if ledger.state is not LedgerState.OPEN:
            return
        if world.budget[RECOVERY]:
            after = with_ledger(world, ledger.with_recovery_begun(TOKEN))
            after = after._replace(budget=spent(world, RECOVERY))
            yield Label("a client begins to recover it", is_fault=True), after
        last = ledger.last_fragment
        if world.budget[CHANGE]:
            members = _replaced(world, last)
            changed = ledger.with_ensemble_change(last.first_entry_id, members, TOKEN)
            after = with_ledger(world, changed)._replace(budget=spent(world, CHANGE))
            yield Label("the writer replaces {}", (last.ensemble[0],), is_fault=True), after
        if world.budget[CLOSE]:
            end = last.first_entry_id
            closed = ledger.with_closed(end, 1, TOKEN)
            after = with_ledger(_written(world, last), closed)
            after = after._replace(budget=spent(world, CLOSE))
            yield Label("the writer closes it at {}", (end,), is_fault=True), after

    def _recovered(self, world: RepairWorld, ledger: LedgerMetadata) -> Step:
        """End a recovery that found one entry in the last fragment, and replaced a member."""
        last = ledger.last_fragment
        changed = Fragment(last.first_entry_id, _replaced(world, last), last.incoming)
        closed = ledger.with_recovered((changed,), last.first_entry_id, 1, TOKEN)
        label = Label("the recovery closes it at {}", (last.first_entry_id,))
        return label, with_ledger(_written(world, changed), closed)


def _replaced(world: RepairWorld, last: Fragment) -> tuple[BookieId, ...]:
    """Return the members with a spare in the place of the first."""
    spare = next((n for n in NAMES[: len(world.bookies)] if n not in last.ensemble), None)
    if spare is None:
        raise ViolationError("a scope has too few bookies")
    return (spare, *last.ensemble[1:])


def _written(world: RepairWorld, last: Fragment) -> RepairWorld:
    """Return the world after the members of the last fragment stored its first entry."""
    bit = 1 << last.first_entry_id
    held = tuple(
        b._replace(held=b.held | bit) if NAMES[n] in last.ensemble else b
        for n, b in enumerate(world.bookies)
    )
    return world._replace(bookies=held)
