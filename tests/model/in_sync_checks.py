"""Checks of worlds of in-sync mode: an in-sync member holds every entry, and alone is enough.

Leaves the rules of every mode to `checks`, and single steps to `in_sync_rules`.

Invariants checked: each member that stored metadata shows as in sync holds every acknowledged
entry, or, once closed, every entry. If all other bookies are lost, a recovery without further
faults by it alone closes the ledger at or after the last acknowledged entry, with every entry on
it. In a world without steps left, a writer waits only if fewer members than `min_in_sync` are alive
and in sync.

Invariants checked: each member that stored metadata shows as in sync holds every entry that was
acknowledged, or, once closed, all; should all other bookies be lost, a recovery in peace by it
alone closes the ledger at or behind what was acknowledged, with every entry on it. Where nothing
happens any more, a writer waits only if fewer members than `min_in_sync` are alive and in sync.

Source: protocol rules 11.2, 11.4 and 11.5.
"""

from collections.abc import Callable

from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from tests.model.bookies import NOT_HELD
from tests.model.words import NAMES, ViolationError, entry
from tests.model.world import Pools, World


class InSyncChecks:
    """Checks of one scope's worlds; a state that passed is not checked again."""

    def __init__(self, pools: Pools, recovered: Callable[[World], World]) -> None:
        self._pools = pools
        self._recovered = recovered
        """Recovers a ledger with the remaining bookies and no more faults."""
        self._survived: dict[tuple[object, ...], None] = {}

    def check(self, world: World) -> None:
        """Raise ViolationError unless the rules are true in a world."""
        stored = self._stored(world)
        end = stored.last_entry_id
        promised = world.acknowledged if end is None else end + 1
        for name in stored.in_sync_members:
            bookie = NAMES.index(name)
            held = self._pools.bookies.states[world.bookies[bookie]].held
            for number in range(promised):
                if held[number] == NOT_HELD:
                    raise ViolationError(f"{name} is stored as in sync and lacks entry {number}")
            if stored.state is LedgerState.OPEN:
                self._survive(world, stored, bookie)

    def _survive(self, world: World, stored: LedgerMetadata, bookie: int) -> None:
        """Remove all bookies but one, and recover."""
        key = stored.fragments, bookie, world.bookies[bookie], world.acknowledged
        if key in self._survived:
            return
        self._survived[key] = None
        self.recover(world._replace(lost=(1 << len(world.bookies)) - 1 & ~(1 << bookie)))

    def recover(self, world: World) -> None:
        """Run a recovery without faults on the remaining bookies.

        Raise ViolationError if it does not close though a member of the last fragment lives, or if
        an entry is lost though an in-sync member lives.
        """
        if not self._live(world, self._stored(world).last_fragment.ensemble):
            return
        is_survived = bool(self._live(world, self._stored(world).in_sync_members))
        now = self._recovered(world)
        closed = self._stored(now)
        if closed.last_entry_id is None:
            raise ViolationError("a recovery in peace does not close the ledger")
        for number in range(closed.last_entry_id + 1) if is_survived else ():
            live = self._live(now, closed.fragment_of(entry(number)).ensemble)
            if all(self._held(now, bookie, number) == NOT_HELD for bookie in live):
                raise ViolationError(f"entry {number} is lost though a member in sync is left")

    def may_wait(self, world: World) -> bool:
        """Return whether a writer has a reason to wait."""
        stored = self._stored(world)
        return len(self._live(world, stored.in_sync_members)) < stored.quorum.min_in_sync

    def _live(self, world: World, names: tuple[str, ...]) -> list[int]:
        bookies = [index for index, name in enumerate(NAMES) if name in names]
        return [bookie for bookie in bookies if not world.lost >> bookie & 1]

    def _held(self, world: World, bookie: int, each: int) -> int:
        return self._pools.bookies.states[world.bookies[bookie]].held[each]

    def _stored(self, world: World) -> LedgerMetadata:
        return self._pools.metadata.values[world.metadata]
