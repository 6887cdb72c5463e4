"""Judges worlds of in-sync mode: who is in sync holds everything, and alone is enough.

Leaves the rest, which holds in every mode, to `checks`, and single steps to `in_sync_rules`.

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
    """The judgement of one scope's worlds; what was found good is not judged again."""

    def __init__(self, pools: Pools, recovered: Callable[[World], World]) -> None:
        self._pools = pools
        self._recovered = recovered
        """Lets a ledger be recovered, with the bookies that are left and no more faults."""
        self._survived: dict[tuple[object, ...], None] = {}

    def check(self, world: World) -> None:
        """Raise ViolationError unless the rules hold in a world."""
        stored = self._stored(world)
        end = stored.last_entry_id
        promised = world.acknowledged if end is None else end + 1
        for name in stored.in_sync_members:
            bookie = NAMES.index(name)
            held = self._pools.bookies.states[world.bookies[bookie]].held
            for each in range(promised):
                if held[each] == NOT_HELD:
                    raise ViolationError(f"{name} is stored as in sync and lacks entry {each}")
            if stored.state is LedgerState.OPEN:
                self._survive(world, stored, bookie)

    def _survive(self, world: World, stored: LedgerMetadata, bookie: int) -> None:
        """Lose all bookies but one, and recover."""
        key = stored.fragments, bookie, world.bookies[bookie], world.acknowledged
        if key in self._survived:
            return
        self._survived[key] = None
        self.recover(world._replace(lost=(1 << len(world.bookies)) - 1 & ~(1 << bookie)))

    def recover(self, world: World) -> None:
        """Let a recovery in peace end with what is left; raise ViolationError if it does not close
        though a member of the last fragment lives, or if an entry is lost though one in sync does.
        """
        if not self._live(world, self._stored(world).last_fragment.ensemble):
            return
        is_survived = bool(self._live(world, self._stored(world).in_sync_members))
        now = self._recovered(world)
        closed = self._stored(now)
        if closed.last_entry_id is None:
            raise ViolationError("a recovery in peace does not close the ledger")
        for each in range(closed.last_entry_id + 1) if is_survived else ():
            live = self._live(now, closed.fragment_of(entry(each)).ensemble)
            if all(self._held(now, bookie, each) == NOT_HELD for bookie in live):
                raise ViolationError(f"entry {each} is lost though a member in sync is left")

    def may_wait(self, world: World) -> bool:
        """Tell whether a writer has reason to wait."""
        stored = self._stored(world)
        return len(self._live(world, stored.in_sync_members)) < stored.quorum.min_in_sync

    def _live(self, world: World, names: tuple[str, ...]) -> list[int]:
        bookies = [index for index, name in enumerate(NAMES) if name in names]
        return [bookie for bookie in bookies if not world.lost >> bookie & 1]

    def _held(self, world: World, bookie: int, each: int) -> int:
        return self._pools.bookies.states[world.bookies[bookie]].held[each]

    def _stored(self, world: World) -> LedgerMetadata:
        return self._pools.metadata.values[world.metadata]
