"""Chooses the bookies of an ensemble, and those that replace failed ones.

Leaves which bookies are up, and which are avoided, to `ledger_client.placement`.

Invariants: pure but for the given `rng`; the bookies chosen are distinct, writable and not
excluded; as many racks as possible are in every write set (the soft rule), never fewer than the
hard rule demands; the same inputs and the same `rng` give the same choice.

Source: protocol rules 3.1, 5.1 and 5.5.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from statistics import median
from typing import Final, Protocol

from metadata.ids import BookieId
from metadata.ledger_metadata import QuorumSpec
from metadata.registration import BookieRegistration

FREE_MULTIPLE_MAX: Final = 3.0
"""An empty disk among full ones gets at most so many times the load of the median."""
WEIGHT_MIN: Final = 1e-6
SEARCH_STEPS_MAX: Final = 2_000

Candidates = Mapping[BookieId, BookieRegistration]


@dataclass(frozen=True, slots=True)
class Shortage:
    """Why no ensemble could be made."""

    needed: int
    """Bookies to be found."""
    seen: int
    """Bookies that could have been taken."""
    excluded: Mapping[BookieId, str]
    """Those that could not, each with its reason."""
    rule: str = ""
    """The rule that the seen ones cannot satisfy; empty if they are just too few."""


class PlacementPolicy(Protocol):
    """Decides who stores what."""

    def new_ensemble(
        self,
        quorum: QuorumSpec,
        candidates: Candidates,
        excluded: Mapping[BookieId, str],
        rng: Random,
    ) -> tuple[BookieId, ...] | Shortage:
        """Return an ensemble for a new ledger or fragment."""
        ...

    def replacements(
        self,
        quorum: QuorumSpec,
        ensemble: tuple[BookieId, ...],
        positions: frozenset[int],
        candidates: Candidates,
        excluded: Mapping[BookieId, str],
        rng: Random,
    ) -> Mapping[int, BookieId] | Shortage:
        """Return another bookie for each of `positions`."""
        ...


@dataclass(frozen=True, slots=True)
class SpreadPolicy:
    """Spreads write sets over racks, and load over bookies by their weight and free disk."""

    by_racks: bool = True
    by_free_disk: bool = True
    min_racks_per_write_quorum: int = 1
    """The hard rule: a choice with a write set in fewer racks is a shortage."""

    def new_ensemble(
        self,
        quorum: QuorumSpec,
        candidates: Candidates,
        excluded: Mapping[BookieId, str],
        rng: Random,
    ) -> tuple[BookieId, ...] | Shortage:
        """Return an ensemble for a new ledger or fragment."""
        empty: list[BookieId | None] = [None] * quorum.ensemble_size
        filled = self._fill(quorum, empty, candidates, excluded, rng)
        return filled if isinstance(filled, Shortage) else tuple(filled)

    def replacements(
        self,
        quorum: QuorumSpec,
        ensemble: tuple[BookieId, ...],
        positions: frozenset[int],
        candidates: Candidates,
        excluded: Mapping[BookieId, str],
        rng: Random,
    ) -> Mapping[int, BookieId] | Shortage:
        """Return another bookie for each of `positions`."""
        members = dict.fromkeys(ensemble, "in the ensemble already")
        kept = [None if p in positions else bookie for p, bookie in enumerate(ensemble)]
        filled = self._fill(quorum, kept, candidates, {**members, **excluded}, rng)
        if isinstance(filled, Shortage):
            return filled
        return {position: filled[position] for position in sorted(positions)}

    def _fill(
        self,
        quorum: QuorumSpec,
        ensemble: list[BookieId | None],
        candidates: Candidates,
        excluded: Mapping[BookieId, str],
        rng: Random,
    ) -> list[BookieId] | Shortage:
        why_not = _reasons(candidates, excluded)
        usable = [candidates[each] for each in sorted(candidates) if each not in why_not]
        needed = ensemble.count(None)
        if len(usable) < needed:
            return Shortage(needed, len(usable), why_not)
        racks = {bookie_id: rack_of(each.location) for bookie_id, each in candidates.items()}
        search = _Search(quorum, ensemble, self._in_random_order(usable, rng), racks)
        for rack_count in range(self._racks_wanted(quorum, search), 0, -1):
            if rack_count < self.min_racks_per_write_quorum:
                break
            found = search.run(rack_count)
            if found is not None:
                return found
        rule = f"every write set in at least {self.min_racks_per_write_quorum} racks"
        return Shortage(needed, len(usable), why_not, rule)

    def _racks_wanted(self, quorum: QuorumSpec, search: "_Search") -> int:
        if not self.by_racks:
            return max(1, self.min_racks_per_write_quorum)
        return min(quorum.write_quorum, search.rack_count)

    def _in_random_order(self, usable: Sequence[BookieRegistration], rng: Random) -> list[BookieId]:
        """Draw without replacement, each in proportion to its weight."""
        room = [float(each.free_bytes) for each in usable]
        typical = median(room)
        keys: list[tuple[float, BookieId]] = []
        for each, free in zip(usable, room, strict=True):
            weight = max(each.weight, WEIGHT_MIN)
            if self.by_free_disk and typical > 0:
                weight *= max(min(free / typical, FREE_MULTIPLE_MAX), WEIGHT_MIN)
            keys.append((-math.log(1.0 - rng.random()) / weight, each.bookie_id))
        return [bookie_id for _, bookie_id in sorted(keys)]


@dataclass(slots=True)
class _Search:
    """Fills the open positions so that each write set spans enough racks; bounded in steps."""

    quorum: QuorumSpec
    ensemble: list[BookieId | None]
    order: Sequence[BookieId]
    racks: Mapping[BookieId, str]
    wanted: int = 1
    steps_left: int = 0
    open_positions: list[int] = field(default_factory=list)

    @property
    def rack_count(self) -> int:
        """How many racks the usable bookies and the members that stay are in."""
        staying = [bookie_id for bookie_id in self.ensemble if bookie_id is not None]
        return len({self._rack(bookie_id) for bookie_id in (*self.order, *staying)})

    def run(self, wanted: int) -> list[BookieId] | None:
        """Return the filled ensemble, each write set in at least `wanted` racks."""
        self.wanted, self.steps_left = wanted, SEARCH_STEPS_MAX
        self.open_positions = [p for p, bookie in enumerate(self.ensemble) if bookie is None]
        filled = list(self.ensemble)
        if not self._fill_from(0, filled):
            return None
        return [bookie_id for bookie_id in filled if bookie_id is not None]

    def _fill_from(self, depth: int, filled: list[BookieId | None]) -> bool:
        if depth == len(self.open_positions):
            return True
        position = self.open_positions[depth]
        tried: dict[str, None] = {}
        for bookie_id in self._by_clashes(position, filled):
            rack = self._rack(bookie_id)
            if rack in tried:  # bookies of one rack are alike here
                continue
            tried[rack] = None
            self.steps_left -= 1
            if self.steps_left < 0:
                return False
            filled[position] = bookie_id
            if self._is_spread(position, filled) and self._fill_from(depth + 1, filled):
                return True
            filled[position] = None
        return False

    def _by_clashes(self, position: int, filled: list[BookieId | None]) -> list[BookieId]:
        """Return the bookies that are left, those in the rack of fewest neighbours first."""
        clashes: dict[str, int] = {}
        for neighbour in self._neighbours(position, filled):
            rack = self._rack(neighbour)
            clashes[rack] = clashes.get(rack, 0) + 1
        left = [bookie_id for bookie_id in self.order if bookie_id not in filled]
        return sorted(left, key=lambda bookie_id: clashes.get(self._rack(bookie_id), 0))

    def _neighbours(self, position: int, filled: list[BookieId | None]) -> list[BookieId]:
        size, reach = len(filled), self.quorum.write_quorum - 1
        places = dict.fromkeys((position + i) % size for i in range(-reach, reach + 1))
        return [each for p in places if p != position and (each := filled[p]) is not None]

    def _is_spread(self, position: int, filled: list[BookieId | None]) -> bool:
        """Tell whether the write sets that hold a position, as far as filled, can still do."""
        size, width = len(filled), self.quorum.write_quorum
        for start in range(position - width + 1, position + 1):
            window = [filled[(start + i) % size] for i in range(width)]
            racks = {self._rack(each) for each in window if each is not None}
            if len(racks) + window.count(None) < self.wanted:
                return False
        return True

    def _rack(self, bookie_id: BookieId) -> str:
        # A member that has left the registration: counted as a rack of its own.
        return self.racks.get(bookie_id, bookie_id)


def rack_of(location: str) -> str:
    """Return the rack, with its region, of a location `/region/rack/host`."""
    return location.rstrip("/").rpartition("/")[0] or location


def _reasons(candidates: Candidates, excluded: Mapping[BookieId, str]) -> dict[BookieId, str]:
    reasons = {each: excluded[each] for each in sorted(excluded)}
    for bookie_id in sorted(candidates):
        if not candidates[bookie_id].writable:
            reasons.setdefault(bookie_id, "read-only")
    return reasons
