"""Choice of the bookies of an ensemble, and of replacements for failed ones: on different racks and
hosts.

Leaves the list of live and avoided bookies to `ledger_client.bookies.placement`.

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

from metadata.ids import BookieId
from metadata.ledgers.copies import windows
from metadata.ledgers.ledger_metadata import QuorumSpec
from metadata.registry.location import Place
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
class Spread:
    """Number of racks and hosts that each write set spans."""

    racks: int
    hosts: int


class SpreadSearch:
    """Fills the open positions of one ensemble.

    `order` lists the usable bookies, preferred ones first. `places` contains the place of every
    live bookie; a kept member that is not in it counts as a separate rack and host.

    Bookies of one host are equivalent here, so a search tries one of them per position. It first
    tries the hosts whose racks are least used by the position's write sets; among those, the hosts
    that are least used themselves. It records the states that failed and searches none of them
    again.

    The number of steps is bounded. Only write sets with an open position are judged. A write set
    whose kept members share a rack or a host must be spread as far as is still possible.
    """

    def __init__(
        self,
        write_quorum: int,
        ensemble: Sequence[BookieId | None],
        order: Sequence[BookieId],
        places: Mapping[BookieId, Place],
    ) -> None:
        self._order = order
        self._open = [p for p, bookie_id in enumerate(ensemble) if bookie_id is None]
        self._write_sets = windows(len(ensemble), write_quorum)
        self._numbers: dict[Place, int] = {}
        """The number of each host, by its place."""
        self._left: list[list[int]] = []
        """By host: its unused bookies, as indexes into `order`, the preferred one last."""
        for index in range(len(order) - 1, -1, -1):
            self._left[self._number(places[order[index]])].append(index)
        self._filled = [
            None if bookie is None else self._number(places.get(bookie, Place(bookie, bookie)))
            for bookie in ensemble
        ]
        """By position: the host that fills it."""
        racks: dict[str, int] = {}
        self._racks = [racks.setdefault(place.rack, len(racks)) for place in self._numbers]
        """By host: its rack."""
        self._chosen: list[int] = []
        self._failed: dict[object, None] = {}
        self._targets: list[Spread] = []
        self._steps_max = 0
        self.steps = 0
        """Bookies that the last run tried."""
        self.write_quorum = write_quorum

    @property
    def most(self) -> Spread:
        """Return the number of racks and hosts, including those of the kept members."""
        return Spread(len(dict.fromkeys(self._racks)), len(self._racks))

    @property
    def least_racks(self) -> int:
        """Return how many racks the write set can reach whose kept members share the most racks."""
        reached = [self._reach(set_).racks for set_ in self._write_sets if self._is_open(set_)]
        return min(reached, default=self.write_quorum)

    def run(self, wanted: Spread, steps_max: int) -> list[BookieId] | None:
        """Return a bookie for each open position, so that each write set with an open position is
        spread as wanted, or as far as its kept members allow. Returns None if there is no such
        choice, or if none is found in `steps_max` steps; a step takes about 10 microseconds.
        """
        self.steps, self._steps_max = 0, steps_max
        self._failed.clear()
        self._targets = [self._target(write_set, wanted) for write_set in self._write_sets]
        if all(target == wanted for target in self._targets) and not self._may_reach(wanted):
            return None
        if not self._fill_from(0):
            return None
        chosen = [self._order[index] for index in self._chosen]
        for position in reversed(self._open):
            self._take_back(position)
        return chosen

    def _number(self, place: Place) -> int:
        number = self._numbers.setdefault(place, len(self._numbers))
        if number == len(self._left):
            self._left.append([])
        return number

    def _is_open(self, write_set: tuple[int, ...]) -> bool:
        return any(self._filled[p] is None for p in write_set)

    def _reach(self, write_set: tuple[int, ...]) -> Spread:
        """Return the most racks and hosts that a write set can span, given the bookies that fill it
        now.
        """
        hosts = [host for p in write_set if (host := self._filled[p]) is not None]
        room = len(write_set) - len(hosts)
        racks = len(dict.fromkeys(self._racks[host] for host in hosts))
        return Spread(racks + room, len(dict.fromkeys(hosts)) + room)

    def _target(self, write_set: tuple[int, ...], wanted: Spread) -> Spread:
        if not self._is_open(write_set):
            return Spread(0, 0)
        reach = self._reach(write_set)
        return Spread(min(wanted.racks, reach.racks), min(wanted.hosts, reach.hosts))

    def _fill_from(self, depth: int) -> bool:
        if depth == len(self._open):
            return True
        if self._failed and self._state(depth) in self._failed:
            return False
        position = self._open[depth]
        for host in self._by_clashes(position):
            if self.steps == self._steps_max:
                return False
            self.steps += 1
            self._filled[position] = host
            self._chosen.append(self._left[host].pop())
            if self._is_spread(position) and self._fill_from(depth + 1):
                return True
            self._take_back(position)
        self._failed[self._state(depth)] = None
        return False

    def _may_reach(self, wanted: Spread) -> bool:
        """Return whether the numbers of bookies per rack and host allow the wanted spread."""
        hosts = [len(indexes) for indexes in self._left]
        for host in self._filled:
            if host is not None:
                hosts[host] += 1
        racks = [0] * len(hosts)
        for rack, count in zip(self._racks, hosts, strict=True):
            racks[rack] += count
        size, width = len(self._filled), len(self._write_sets[0])
        return wanted.racks <= _most_groups(racks, size, width) and (
            wanted.hosts <= _most_groups(hosts, size, width)
        )

    def _take_back(self, position: int) -> None:
        host = self._filled[position]
        assert host is not None, "the position was filled"
        self._filled[position] = None
        self._left[host].append(self._chosen.pop())

    def _by_clashes(self, position: int) -> list[int]:
        """Return the hosts with unused bookies, ordered by how little the other members of the
        position's write sets use them, then by the preference of the bookie.
        """
        hosts: dict[int, int] = {}
        racks: dict[int, int] = {}
        for write_set in self._write_sets:
            if position in write_set:
                for host in (self._filled[p] for p in write_set):
                    if host is not None:
                        hosts[host] = hosts.get(host, 0) + 1
                        racks[self._racks[host]] = racks.get(self._racks[host], 0) + 1
        keyed = [
            (racks.get(self._racks[host], 0), hosts.get(host, 0), left[-1], host)
            for host, left in enumerate(self._left)
            if left
        ]
        keyed.sort()
        return [host for *_, host in keyed]

    def _is_spread(self, position: int) -> bool:
        """Return whether the write sets that contain a position can still reach the
        wanted spread.
        """
        for write_set, target in zip(self._write_sets, self._targets, strict=True):
            if position in write_set:
                reach = self._reach(write_set)
                if reach.racks < target.racks or reach.hosts < target.hosts:
                    return False
        return True

    def _state(self, depth: int) -> object:
        """Return everything that decides whether the positions from `depth` on can be filled. Hosts
        and racks are numbered in order here, so that states that differ only in names are equal.
        """
        racks: dict[int, int] = {}
        hosts: dict[int, int] = {}
        edge: list[tuple[int, int, int]] = []
        for position, host in enumerate(self._filled):
            if host is not None and self._has_open_neighbour(position):
                rack = racks.setdefault(self._racks[host], len(racks))
                name = hosts.setdefault(host, len(hosts))
                edge.append((rack, name, len(self._left[host])))
        others: dict[int, list[int]] = {}
        for host, left in enumerate(self._left):
            if left and host not in hosts:
                others.setdefault(self._racks[host], []).append(len(left))
        rest = sorted((racks.get(rack, -1), *sorted(counts)) for rack, counts in others.items())
        return depth, tuple(edge), tuple(rest)

    def _has_open_neighbour(self, position: int) -> bool:
        return any(position in set_ and self._is_open(set_) for set_ in self._write_sets)


def _most_groups(counts: Sequence[int], size: int, width: int) -> int:
    """Return the maximum number of groups of which every write set can have members; `counts` is
    the number of members of each group.

    A member is in `width` of the `size` write sets. Members of one group that are far enough apart
    are in different write sets; beyond size / width of them, more members add little.
    """
    if size == width:
        return min(width, sum(count > 0 for count in counts))
    apart, rest = divmod(size, width)
    full = min(size, sum(min(count, apart) for count in counts))
    more = min(size - full, sum(count > apart for count in counts))
    return min(width, (full * width + more * rest) // size)


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
        usable = [candidates[id_] for id_ in sorted(candidates) if id_ not in why_not]
        needed = ensemble.count(None)
        if len(usable) < needed:
            return Shortage(needed, len(usable), why_not)
        places = {bookie_id: registration.place for bookie_id, registration in candidates.items()}
        order = self._in_random_order(usable, rng)
        search = SpreadSearch(quorum.write_quorum, ensemble, order, places)
        members = self._search(search)
        if members is None:
            rule = f"every write set in at least {self.min_racks_per_write_quorum} racks"
            return Shortage(needed, len(usable), why_not, rule)
        chosen = iter(members)
        return [next(chosen) if bookie is None else bookie for bookie in ensemble]

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
        for spread in wanted[:-1]:
            members = search.run(spread, steps_left // 2)
            if members is not None:
                return members
            steps_left -= search.steps
        return search.run(wanted[-1], SEARCH_STEPS_MAX // 2) if wanted else None

    def _in_random_order(self, usable: Sequence[BookieRegistration], rng: Random) -> list[BookieId]:
        """Draw without replacement, in proportion to the weights."""
        room = [float(registration.free_bytes) for registration in usable]
        typical = median(room)
        keys: list[tuple[float, BookieId]] = []
        for registration, free in zip(usable, room, strict=True):
            weight = max(registration.weight, WEIGHT_MIN)
            if self.by_free_disk and typical > 0:
                weight *= max(min(free / typical, FREE_MULTIPLE_MAX), WEIGHT_MIN)
            keys.append((-math.log(1.0 - rng.random()) / weight, registration.bookie_id))
        return [bookie_id for _, bookie_id in sorted(keys)]


def _reasons(candidates: Candidates, excluded: Mapping[BookieId, str]) -> dict[BookieId, str]:
    reasons = {bookie: excluded[bookie] for bookie in sorted(excluded)}
    for bookie_id in sorted(candidates):
        if not candidates[bookie_id].writable:
            reasons.setdefault(bookie_id, "read-only")
    return reasons
