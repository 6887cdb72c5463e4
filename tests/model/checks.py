"""Checks of worlds: the rules for every world, and for worlds in which no step is left.

Leaves the rules for a single step (confirmations in order, changes of stored metadata) to
`world.Draft`.

Invariants checked, from the end of the protocol: an acknowledged entry is on an ack quorum of the
write set that stored metadata names, and in the closed ledger. Every entry of a closed ledger is on
such a quorum, and the length is correct. No bookie has a LAC beyond the confirmed entries, or, once
closed, beyond the end. In a world without steps left, the writer has confirmed all entries or
ended, every recoverer has ended, and one more recovery, without faults, ends and finds all.

Source: protocol, "Invariants that the simulation checks"; rules 4.5, 6.1, 7.3-7.5.
"""

from metadata.ledgers.copies import write_set
from tests.model.bookies import NOT_HELD
from tests.model.in_sync_checks import InSyncChecks
from tests.model.protocols import DONE, FIRST
from tests.model.steps import Steps
from tests.model.words import NAMES, WRITER, ViolationError, entry, length_of
from tests.model.world import Pools, World

PEACE_STEPS_MAX = 500


class Checks:
    """Checks of one scope's worlds; a state that passed is not checked again."""

    def __init__(self, pools: Pools, steps: Steps) -> None:
        self._pools = pools
        self._steps = steps
        self._good: dict[tuple[object, ...], None] = {}
        self._peaceful: dict[tuple[object, ...], None] = {}
        is_in_sync = pools.scope.quorum.is_in_sync
        self._in_sync = InSyncChecks(pools, self._recovered) if is_in_sync else None

    def check(self, world: World) -> None:
        """Raise ViolationError unless the rules are true in a world."""
        key = world.metadata, world.bookies, world.acknowledged
        if key in self._good:
            return
        self._check_entries(world)
        self._check_lacs(world)
        self._good[key] = None
        if self._in_sync is not None:
            self._in_sync.check(world)

    def _check_entries(self, world: World) -> None:
        stored = self._pools.metadata.values[world.metadata]
        end = stored.last_entry_id
        if end is not None:
            if end + 1 < world.acknowledged:
                raise ViolationError(f"it ends at {end}, {world.acknowledged} were acknowledged")
            if stored.length != length_of(end + 1):
                raise ViolationError(f"it ends at {end} with length {stored.length}")
        promised = world.acknowledged if end is None else end + 1
        states = self._pools.bookies.states
        held = {
            name: states[number].held for name, number in zip(NAMES, world.bookies, strict=False)
        }
        for each in range(promised):
            fragment = stored.fragment_of(entry(each))
            quorum = stored.quorum_of(fragment)
            names = write_set(quorum, fragment, entry(each))
            copies = sum(held[name][each] != NOT_HELD for name in names)
            if copies < quorum.ack_quorum:
                raise ViolationError(f"entry {each} has {copies} copies at {','.join(names)}")

    def _check_lacs(self, world: World) -> None:
        stored = self._pools.metadata.values[world.metadata]
        known = max(self._pools.bookies.states[number].lac for number in world.bookies)
        end = stored.last_entry_id
        if known >= world.acknowledged and (end is None or known > end):
            raise ViolationError(
                f"a bookie reports LAC {known}, {world.acknowledged} are confirmed"
            )

    # -- worlds without steps left -----------------------------------------------------------------

    def check_rest(self, world: World) -> None:
        """Raise ViolationError unless each actor that can end has ended, and recovery finds all."""
        writer = self._pools.writers.states[world.actors[WRITER]]
        if writer is not None:
            if world.is_closing:
                raise ViolationError("the close does not end")
            may_wait = self._in_sync is not None and self._in_sync.may_wait(world)
            if world.acknowledged < self._pools.scope.entries and not may_wait:
                raise ViolationError(f"the writer is stuck behind entry {world.acknowledged - 1}")
        if any(state != DONE for state in world.actors[1:]):
            raise ViolationError("a recovery does not end")
        self._recover_in_peace(world)

    def _recover_in_peace(self, world: World) -> None:
        key = world.metadata, world.bookies, world.lost, world.acknowledged
        if key in self._peaceful:
            return
        if self._in_sync is not None:
            self._in_sync.recover(world)
        elif self._pools.metadata.values[self._recovered(world).metadata].last_entry_id is None:
            raise ViolationError("a recovery in peace does not close the ledger")
        self._peaceful[key] = None

    def _recovered(self, world: World) -> World:
        """Return the world after one more recovery, without faults."""
        label = self._steps.label
        now = world._replace(
            actors=(DONE, FIRST),
            messages=(),
            operations=(0, 0),
            budget=(0,) * len(world.budget),
            copy=0,
        )
        for _ in range(PEACE_STEPS_MAX):
            following = next(self._steps.after(now), None)
            if following is None:
                break
            now = following[1]
            self.check(now)
        self._steps.label = label
        return now
