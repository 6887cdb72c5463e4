"""States of all bookies: silent, slow, lost, and available to the placement.

Leaves the effects on ledgers to `appending`, `copying` and `repairing`.

Invariants: a machine has one bookie at a time, and an empty disk makes it a new one (rule 2.1); a
machine is silent while any of its faults lasts; a lost bookie never returns.

Source: protocol rules 2.1 and 5.7.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

from benchmarks.fleet.assumptions import Assumptions
from ledger_client.bookies.placement_policy import Shortage, SpreadPolicy
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import QuorumSpec
from metadata.registry.registration import BookieRegistration

SAMPLE_PER_REPLICA: Final = 4
"""Number of bookies per replica among which the policy chooses, drawn evenly. If all have the same
weight and the sample has enough racks, the choice equals one among all bookies, in a fifth of the
time."""


@dataclass(slots=True, eq=False)
class Silence:
    """Reason why a bookie does not respond."""

    keeps_what_was_sent: bool
    """A pause: what was sent during it waits in the connections and is stored when it ends."""


class Bookies:
    """All machines and their bookies."""

    def __init__(self, assumptions: Assumptions, rng: Random) -> None:
        self._rng = rng
        self._policy = SpreadPolicy()
        self._racks = assumptions.racks
        self._causes = [0] * assumptions.bookies
        self._slow_causes = [0] * assumptions.bookies
        self._generation = [0] * assumptions.bookies
        self.on_machine = [self._id_of(number) for number in range(assumptions.bookies)]
        self.silent: dict[BookieId, Silence] = {}
        self.slow: dict[BookieId, None] = {}
        self.lost: dict[BookieId, None] = {}
        self._offered: dict[BookieId, BookieRegistration] = {}
        self._names: list[BookieId] = []
        for machine in range(assumptions.bookies):
            self.offer(machine)

    # -- faults ----------------------------------------------------------------------------------

    def begin_silence(self, machine: int, silence: Silence) -> BookieId | None:
        """Count one more fault of a machine; return its bookie if that becomes silent."""
        self._causes[machine] += 1
        bookie_id = self.on_machine[machine]
        if bookie_id in self.silent:
            self.silent[bookie_id].keeps_what_was_sent &= silence.keeps_what_was_sent
            return None
        self.silent[bookie_id] = silence
        return bookie_id

    def end_silence(self, machine: int) -> tuple[BookieId, Silence] | None:
        """Count one fault less; return the bookie that is back, and its silence.

        A machine whose disk was lost comes back as a new bookie, which no ledger waits for.
        """
        self._causes[machine] -= 1
        if self._causes[machine]:
            return None
        bookie_id = self.on_machine[machine]
        if bookie_id in self.lost:
            self._generation[machine] += 1
            self.on_machine[machine] = self._id_of(machine)
            return None
        return bookie_id, self.silent.pop(bookie_id)

    def change_slowness(self, machine: int, difference: int) -> BookieId | None:
        """Count slow periods of a machine; return its bookie if its pace changed."""
        before = self._slow_causes[machine]
        self._slow_causes[machine] += difference
        bookie_id = self.on_machine[machine]
        if self._slow_causes[machine] and bookie_id not in self.lost:
            self.slow[bookie_id] = None
        else:
            self.slow.pop(bookie_id, None)
        return bookie_id if bool(before) != bool(self._slow_causes[machine]) else None

    def answers(self, bookie_id: BookieId) -> bool:
        """Return whether a bookie responds."""
        return bookie_id not in self.silent

    def is_prompt(self, bookie_id: BookieId) -> bool:
        """Return whether a bookie responds at its usual pace."""
        return bookie_id not in self.silent and bookie_id not in self.slow

    def is_intact(self, bookie_id: BookieId) -> bool:
        """Return whether a bookie's data still exists."""
        return bookie_id not in self.lost

    # -- placement -------------------------------------------------------------------------------

    def offer(self, machine: int) -> None:
        """Make the bookie of a machine available to the placement."""
        bookie_id = self.on_machine[machine]
        if bookie_id in self._offered or bookie_id in self.silent or bookie_id in self.lost:
            return
        location = f"/region/rack-{machine % self._racks}/machine-{machine}"
        self._offered[bookie_id] = BookieRegistration(bookie_id, "", 0, location=location)
        self._names.append(bookie_id)

    def withdraw(self, bookie_id: BookieId) -> None:
        """Remove a bookie from the placement: it is not registered, or is in quarantine."""
        if self._offered.pop(bookie_id, None) is not None:
            self._names.remove(bookie_id)

    def new_ensemble(self, quorum: QuorumSpec) -> tuple[BookieId, ...] | Shortage:
        """Choose the bookies of a new ledger."""
        sample = self._sample(quorum, ())
        chosen = self._policy.new_ensemble(quorum, sample, {}, self._rng)
        if isinstance(chosen, Shortage) and sample is not self._offered:
            return self._policy.new_ensemble(quorum, self._offered, {}, self._rng)
        return chosen

    def replacements(
        self, quorum: QuorumSpec, ensemble: tuple[BookieId, ...], positions: frozenset[int]
    ) -> Mapping[int, BookieId] | Shortage:
        """Choose replacements for some positions of an ensemble."""
        sample = self._sample(quorum, ensemble)
        return self._policy.replacements(quorum, ensemble, positions, sample, {}, self._rng)

    def _sample(
        self, quorum: QuorumSpec, members: tuple[BookieId, ...]
    ) -> dict[BookieId, BookieRegistration]:
        size = SAMPLE_PER_REPLICA * quorum.write_quorum
        if len(self._names) <= size:
            return self._offered
        wanted = self._rng.sample(self._names, size)
        wanted += [member for member in members if member in self._offered]
        return {bookie: self._offered[bookie] for bookie in wanted}

    def _id_of(self, machine: int) -> BookieId:
        return BookieId(f"bookie-{machine:03}-{self._generation[machine]}")
