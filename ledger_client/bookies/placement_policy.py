"""Choice of the bookies of an ensemble, and of replacements for failed ones.

Leaves the list of live and avoided bookies to `ledger_client.bookies.placement`, and the search for
bookies on different racks and hosts to `ledger_client.bookies.placement_search`.

Invariants: pure except for the given `rng`; the chosen bookies are distinct, writable and not
excluded; every write set spans as many racks as possible, then as many hosts as possible (the soft
rules), and never fewer racks than the hard rule requires; the same inputs and the same `rng` give
the same choice.

Source: protocol rules 3.1, 3.3, 5.1 and 5.5.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from statistics import median
from typing import Final, Protocol

from ledger_client.bookies.placement_search import Spread, SpreadSearch
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import QuorumSpec
from metadata.registry.registration import BookieRegistration

FREE_MULTIPLE_MAX: Final = 3.0
"""Maximum load of an empty disk among full ones, as a multiple of the median's load."""
WEIGHT_MIN: Final = 1e-6
SEARCH_STEPS_MAX: Final = 4_000
"""Maximum number of steps of all searches of one choice. Each search gets half of the remaining
steps. The last search, for the hard rule alone, gets as many as the first one. A choice takes about
60 ms at most.
"""

Candidates = Mapping[BookieId, BookieRegistration]


@dataclass(frozen=True, slots=True)
class Shortage:
    """Reason why no ensemble could be formed."""

    needed: int
    """Number of bookies to find."""
    seen: int
    """Number of bookies that could be chosen."""
    excluded: Mapping[BookieId, str]
    """Bookies that could not be chosen, each with its reason."""
    rule: str = ""
    """The rule that the seen bookies cannot satisfy; empty if there are just too few."""
    failure: str = ""
    """The exception of the policy, if it raised one."""

    @property
    def why(self) -> str:
        """Text that follows the numbers of bookies in an error's text; empty if they say it all."""
        if self.failure:
            return f"; {self.failure}"
        return f", which cannot satisfy: {self.rule}" if self.rule else ""


class PlacementPolicy(Protocol):
    """Policy that decides which bookies store which entries."""

    def new_ensemble(
        self,
        quorum: QuorumSpec,
        candidates: Candidates,
        excluded: Mapping[BookieId, str],
        rng: Random,
    ) -> tuple[BookieId, ...] | Shortage:
        """Return an ensemble for a new ledger or fragment."""

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


@dataclass(frozen=True, slots=True)
class SpreadPolicy:
    """Policy that spreads write sets over racks and hosts, and load over bookies by weight and free
    disk.
    """

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
        places = {bookie_id: each.place for bookie_id, each in candidates.items()}
        order = self._in_random_order(usable, rng)
        search = SpreadSearch(quorum.write_quorum, ensemble, order, places)
        found = self._search(search)
        if found is None:
            rule = f"every write set in at least {self.min_racks_per_write_quorum} racks"
            return Shortage(needed, len(usable), why_not, rule)
        chosen = iter(found)
        return [next(chosen) if each is None else each for each in ensemble]

    def _search(self, search: SpreadSearch) -> list[BookieId] | None:
        """Search with decreasing spread until a choice is found: first with fewer hosts, then with
        fewer racks.
        """
        racks_min = max(1, self.min_racks_per_write_quorum)
        if search.least_racks < racks_min:
            return None
        racks_max = min(search.most.racks, search.write_quorum) if self.by_racks else racks_min
        hosts_max = min(search.most.hosts, search.write_quorum)
        wanted = [
            Spread(racks, hosts)
            for racks in range(racks_max, racks_min - 1, -1)
            for hosts in range(max(racks, hosts_max), racks - 1, -1)
        ]
        steps_left = SEARCH_STEPS_MAX
        for each in wanted[:-1]:
            found = search.run(each, steps_left // 2)
            if found is not None:
                return found
            steps_left -= search.steps
        return search.run(wanted[-1], SEARCH_STEPS_MAX // 2) if wanted else None

    def _in_random_order(self, usable: Sequence[BookieRegistration], rng: Random) -> list[BookieId]:
        """Draw without replacement, in proportion to the weights."""
        room = [float(each.free_bytes) for each in usable]
        typical = median(room)
        keys: list[tuple[float, BookieId]] = []
        for each, free in zip(usable, room, strict=True):
            weight = max(each.weight, WEIGHT_MIN)
            if self.by_free_disk and typical > 0:
                weight *= max(min(free / typical, FREE_MULTIPLE_MAX), WEIGHT_MIN)
            keys.append((-math.log(1.0 - rng.random()) / weight, each.bookie_id))
        return [bookie_id for _, bookie_id in sorted(keys)]


def _reasons(candidates: Candidates, excluded: Mapping[BookieId, str]) -> dict[BookieId, str]:
    reasons = {each: excluded[each] for each in sorted(excluded)}
    for bookie_id in sorted(candidates):
        if not candidates[bookie_id].writable:
            reasons.setdefault(bookie_id, "read-only")
    return reasons
