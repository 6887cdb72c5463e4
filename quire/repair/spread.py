"""Spread of copies over racks and hosts, and moves that make it better. Pure.

Invariants: a move makes a write set span more racks, or as many racks and more hosts, and makes no
write set span fewer, so a series of moves ends. A fragment is not moved while the place of a member
is not known: the member is away, and it may be the one in another rack.

Write sets without entries need no place.

Source: protocol rules 3.3 and 9.17.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from metadata.ids import BookieId
from metadata.ledgers.copies import Holders
from metadata.ledgers.ledger_metadata import QuorumSpec
from metadata.registry.location import Place
from metadata.registry.registration import BookieRegistration
from quire.repair.standing import Standing, Standings


@dataclass(frozen=True, slots=True)
class Places:
    """Places of the bookies that are registered."""

    known: Mapping[BookieId, Place] = field(default_factory=lambda: MappingProxyType({}))
    usable: Sequence[BookieId] = ()
    """Bookies that may get copies."""


NO_PLACES: Final = Places()
"""No place is known, so nothing is moved."""


def places_of(registered: Mapping[BookieId, BookieRegistration], standings: Standings) -> Places:
    """Return the places of the registered bookies. Those that are good and writable are usable."""
    return Places(
        {bookie_id: registration.place for bookie_id, registration in registered.items()},
        tuple(
            bookie_id
            for bookie_id, registration in sorted(registered.items())
            if registration.writable and standings.of(bookie_id) is Standing.GOOD
        ),
    )


def misplaced_member(holders: Holders, quorum: QuorumSpec, places: Places) -> BookieId | None:
    """Return a member whose copies can move to a better place; None if there is none."""
    if any(bookie not in places.known for bookie in holders.ensemble):
        return None
    before, most = _spans(holders, quorum, places.known), _most(holders.ensemble, quorum, places)
    if all(count == most for count in before):
        return None
    for target in _different_targets(holders.ensemble, places):
        for member in holders.ensemble:
            after = _spans(_moved(holders, member, target), quorum, places.known)
            if _is_better(before, after):
                return member
    return None


def is_better_place(
    holders: Holders, quorum: QuorumSpec, places: Places, member: BookieId, target: BookieId
) -> bool:
    """Return whether copies of a member are in a better place on a bookie that is not one."""
    if any(bookie not in places.known for bookie in (*holders.ensemble, target)):
        return False
    before = _spans(holders, quorum, places.known)
    return _is_better(before, _spans(_moved(holders, member, target), quorum, places.known))


_Spans = list[tuple[int, int]]
"""By write set that may have entries: its number of racks and of hosts."""


def _spans(holders: Holders, quorum: QuorumSpec, known: Mapping[BookieId, Place]) -> _Spans:
    spans: _Spans = []
    for members in holders.write_sets(quorum):
        hosts = dict.fromkeys([known[member] for member in members])
        spans.append((len(dict.fromkeys([host.rack for host in hosts])), len(hosts)))
    return spans


def _is_better(before: _Spans, after: _Spans) -> bool:
    return after != before and all(new >= old for new, old in zip(after, before, strict=True))


def _most(ensemble: tuple[BookieId, ...], quorum: QuorumSpec, places: Places) -> tuple[int, int]:
    """Return the racks and hosts that no write set can exceed."""
    hosts = dict.fromkeys(places.known[bookie] for bookie in (*places.usable, *ensemble))
    racks = dict.fromkeys(host.rack for host in hosts)
    size = len(ensemble) if quorum.is_in_sync else quorum.write_quorum
    return min(size, len(racks)), min(size, len(hosts))


def _moved(holders: Holders, member: BookieId, target: BookieId) -> Holders:
    ensemble = tuple([target if bookie == member else bookie for bookie in holders.ensemble])
    return Holders(ensemble, holders.empty_starts)


def _different_targets(ensemble: tuple[BookieId, ...], places: Places) -> list[BookieId]:
    """Return one usable bookie of each kind: all racks and hosts without a member are alike."""
    held = dict.fromkeys(places.known[bookie] for bookie in ensemble)
    racks = dict.fromkeys(place.rack for place in held)
    targets: dict[tuple[str | None, Place | None], BookieId] = {}
    for bookie_id in places.usable:
        place = places.known[bookie_id]
        if bookie_id not in ensemble:
            kind = place.rack if place.rack in racks else None, place if place in held else None
            targets.setdefault(kind, bookie_id)
    return list(targets.values())
