"""Checker: bookies of one write set share a host only if no choice could avoid it.

Each choice of a client is compared with the best choice among the bookies that this client saw and
did not avoid. The metadata stored for an open ledger must be the client's choice.

Source: protocol rules 3.3, 5.1.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import permutations
from random import Random
from unittest.mock import patch

from typing_extensions import override

from ledger_client.bookies.placement_policy import Candidates, Shortage, SpreadPolicy
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState, QuorumSpec
from metadata.registry.location import Place
from tests.simulation.checkers.checker import Checker
from tests.simulation.model import LedgerModel, Model

Ensemble = tuple[BookieId, ...]
Reached = tuple[int, int]
"""Minimum number of racks and of hosts that a write set spans."""


class HostsChecker(Checker):
    """Checks every choice of bookies and every ensemble that is stored."""

    name = "hosts"

    def __init__(self, model: Model) -> None:
        super().__init__(model)
        self._chosen: dict[Ensemble, None] = {}
        self._best: dict[object, Reached | None] = {}

    def on_choice(
        self,
        quorum: QuorumSpec,
        kept: Sequence[BookieId | None],
        chosen: Ensemble,
        candidates: Candidates,
        excluded: Mapping[BookieId, str],
    ) -> None:
        """Check an ensemble that a client chose; `kept` has None at the chosen positions."""
        self._chosen[chosen] = None
        places = {candidate: _place_in(candidates[candidate].location) for candidate in candidates}
        filled = [places.get(bookie, Place(bookie, bookie)) for bookie in chosen]
        held = [at if bookie is not None else None for bookie, at in zip(kept, filled, strict=True)]
        spare = [
            places[bookie]
            for bookie, registration in candidates.items()
            if registration.writable and bookie not in excluded and bookie not in kept
        ]
        key = quorum.write_quorum, tuple(held), tuple(sorted((p.rack, p.host) for p in spare))
        if key not in self._best:
            self._best[key] = best_of_all(quorum, held, spare)
        best = self._best[key]
        if best is not None and reached(quorum, held, filled) < best:
            self.report(f"{chosen} with {kept} kept: {filled}, and {best} could be had")

    @override
    def on_metadata(self, ledger: LedgerModel, before: LedgerMetadata | None) -> None:
        now = ledger.metadata
        if now is None or now.state is not LedgerState.OPEN or now.quorum.is_in_sync:
            return  # in-sync members leave and change places without a choice
        ensemble = now.last_fragment.ensemble
        is_new = before is None or before.last_fragment.ensemble != ensemble
        if is_new and ensemble not in self._chosen:
            self.report(f"ledger {ledger.ledger_id}: {ensemble} is stored, but no client chose it")


@contextmanager
def watched_choices(checker: HostsChecker) -> Iterator[None]:
    """Report every choice of every client to the checker, with the bookies that the client saw."""
    new_ensemble, replacements = SpreadPolicy.new_ensemble, SpreadPolicy.replacements

    def watched_new(
        self: SpreadPolicy,
        quorum: QuorumSpec,
        candidates: Candidates,
        excluded: Mapping[BookieId, str],
        rng: Random,
    ) -> Ensemble | Shortage:
        chosen = new_ensemble(self, quorum, candidates, excluded, rng)
        if not isinstance(chosen, Shortage):
            none_kept = [None] * quorum.ensemble_size
            checker.on_choice(quorum, none_kept, chosen, candidates, excluded)
        return chosen

    def watched_replacements(
        self: SpreadPolicy,
        quorum: QuorumSpec,
        ensemble: Ensemble,
        positions: frozenset[int],
        candidates: Candidates,
        excluded: Mapping[BookieId, str],
        rng: Random,
    ) -> Mapping[int, BookieId] | Shortage:
        found = replacements(self, quorum, ensemble, positions, candidates, excluded, rng)
        if not isinstance(found, Shortage):
            kept = [None if p in positions else bookie for p, bookie in enumerate(ensemble)]
            chosen = tuple(found.get(p, bookie) for p, bookie in enumerate(ensemble))
            avoided = {**dict.fromkeys(ensemble, "a member"), **excluded}
            checker.on_choice(quorum, kept, chosen, candidates, avoided)
        return found

    with (
        patch.object(SpreadPolicy, "new_ensemble", watched_new),
        patch.object(SpreadPolicy, "replacements", watched_replacements),
    ):
        yield


def reached(quorum: QuorumSpec, kept: Sequence[Place | None], filled: Sequence[Place]) -> Reached:
    """Return the racks and hosts that every write set with an open position spans.

    Hosts that the kept members already share are not held against a choice.
    """
    size, width = quorum.ensemble_size, quorum.write_quorum
    racks, hosts = width, width
    for start in range(size):
        window = [(start + i) % size for i in range(width)]
        members = [each for p in window if (each := kept[p]) is not None]
        if len(members) == width:
            continue
        lost_racks = len(members) - len({member.rack for member in members})
        lost_hosts = len(members) - len(set(members))
        got_racks = len({filled[p].rack for p in window})
        got_hosts = len({filled[p] for p in window})
        racks = min(racks, got_racks if got_racks < width - lost_racks else width)
        hosts = min(hosts, got_hosts if got_hosts < width - lost_hosts else width)
    return racks, hosts


def best_of_all(
    quorum: QuorumSpec, kept: Sequence[Place | None], spare: Sequence[Place]
) -> Reached | None:
    """Try every choice; return the most racks, and the most hosts for that number of racks."""
    best: Reached | None = None
    for chosen in dict.fromkeys(permutations(spare, list(kept).count(None))):
        rest = iter(chosen)
        filled = [next(rest) if place is None else place for place in kept]
        best = max(best or (0, 0), reached(quorum, kept, filled))
    return best


def _place_in(location: str) -> Place:
    rack, _, host = location.rpartition("/")
    return Place(rack, host)
