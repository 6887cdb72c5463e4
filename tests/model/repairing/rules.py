"""Rules of repair: of a swap, of a removal, and of a world without steps left.

Leaves taking the steps to `worker_steps` and `other_steps`.

Invariants checked: a new member of a closed fragment holds all of its entries, and each entry has
at least as many copies as before; the collector of a member removes nothing; a removed bookie holds
no copy that the ledger names; a closed ledger keeps its end. In a world without steps left, no need
is left that can be met, no mark, and no draining bookie that nothing names.

Source: protocol rules 1.5, 9.1, 9.5-9.8 and 10.1.
"""

from metadata.ledgers.copies import FragmentCopies, holders_of_entry
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.repair.lifecycle import Lifecycle
from quire.repair.needs import Cause, Need, closed_fragments
from quire.repair.standing import Standing
from tests.model.repairing.words import Bookie, RepairWorld, number_of
from tests.model.repairing.worker_choices import copy_target, current_standings, is_possible
from tests.model.words import NAMES, ViolationError


def copies_of(ledger: LedgerMetadata, bookies: tuple[Bookie, ...]) -> dict[int, int]:
    """Return how many copies each entry of the closed fragments has, on bookies that live."""
    found: dict[int, int] = {}
    for fragment in closed_fragments(ledger):
        for entry in entries_of(fragment):
            members = holders_of_entry(ledger, entry)
            held = [bookies[number_of(b)] for b in members]
            found[entry] = sum(bool(b.held >> entry & 1) and not b.is_dead for b in held)
    return found


def entries_of(fragment: FragmentCopies) -> range:
    """Return the entries of a closed fragment."""
    assert fragment.last_entry_id is not None
    return range(fragment.first_entry_id, fragment.last_entry_id + 1)


def check_change(before: RepairWorld, after: RepairWorld) -> None:
    """Check one change of the metadata."""
    old, new = before.ledger, after.ledger
    if old is None or new is None:
        return
    if old.state is LedgerState.CLOSED and new.last_entry_id != old.last_entry_id:
        raise ViolationError("the end of a closed ledger moved")
    _check_new_members(old, new, after.bookies)
    had, has = copies_of(old, before.bookies), copies_of(new, after.bookies)
    for each, count in had.items():
        if has[each] < count:
            raise ViolationError(f"entry {each} had {count} copies, and has {has[each]}")


def _check_new_members(
    old: LedgerMetadata, new: LedgerMetadata, bookies: tuple[Bookie, ...]
) -> None:
    """Check that a bookie that becomes a member of a closed fragment holds all of its entries."""
    for fragment in closed_fragments(new):
        before = old.fragment_of(fragment.first_entry_id).ensemble
        for member in set(fragment.ensemble) - set(before):
            for entry in entries_of(fragment):
                is_wanted = member in holders_of_entry(new, entry)
                if is_wanted and not bookies[number_of(member)].held >> entry & 1:
                    raise ViolationError(f"{member} is a member and lacks entry {entry}")


def check_release(world: RepairWorld, number: int) -> None:
    """Check that a collector removes nothing that the ledger names."""
    ledger = world.ledger
    if ledger is None:
        return
    for fragment in closed_fragments(ledger):
        for entry in entries_of(fragment):
            if NAMES[number] in holders_of_entry(ledger, entry):
                raise ViolationError(f"{NAMES[number]} removes entry {entry}, which it must hold")


def check_world(world: RepairWorld) -> None:
    """Check that no removed bookie holds a copy that the ledger names."""
    if world.ledger is None:
        return
    for fragment in closed_fragments(world.ledger):
        for name in fragment.ensemble:
            is_removed = world.states[number_of(name)] is Lifecycle.REMOVED
            if is_removed and (entries := entries_of(fragment)):
                raise ViolationError(f"the removed {name} is a member for entry {entries[-1]}")


def check_rest(world: RepairWorld) -> None:
    """Check a world without steps left."""
    if world.ledger is None:
        return
    ledger = world.ledger
    marks = [b for f in ledger.fragments for b in f.incoming]
    if marks:
        raise ViolationError(f"the mark of {marks} is left")
    standings = current_standings(world)
    for fragment in closed_fragments(ledger):
        for member in fragment.ensemble:
            if standings.of(member) is Standing.GOOD:
                continue
            need = Need(fragment.first_entry_id, member, Cause.GONE)
            plan = copy_target(world, need, standings)
            if plan is not None and is_possible(world, plan):
                raise ViolationError(f"{member} is not replaced")
    for number, state in enumerate(world.states):
        if state is Lifecycle.DRAINING and not ledger.names(NAMES[number]):
            raise ViolationError(f"{NAMES[number]} does not become drained")
