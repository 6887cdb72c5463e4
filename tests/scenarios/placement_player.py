"""Player of transcripts of the placement of bookies.

Set-up: `quorum E/WQ/AQ`, `bookies NAME=LOCATION[@ADDRESS] ...`. Without `@ADDRESS` a bookie
advertises the address 10.0.0.1.

Events:
    place a                         the rack and the host of a bookie
    new                             an ensemble; only its spread is shown, as its order is random
    replace 2 of a,b,c [without d]  another bookie for the positions 2, or 1,2
"""

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from ledger_client.bookies.placement_policy import Shortage, SpreadPolicy
from metadata.ids import BookieId
from metadata.registry.registration import BookieRegistration
from tests.scenarios import words as w

ADDRESS: Final = "10.0.0.1"


class PlacementPlayer:
    """One policy and the bookies that are up."""

    def __init__(self, setup: Mapping[str, str]) -> None:
        self._quorum = w.parse_quorum(setup["quorum"])
        self._bookies: dict[BookieId, BookieRegistration] = {}
        for name, value in w.parse_options(setup["bookies"].split()).items():
            location, _, address = value.partition("@")
            bookie_id = BookieId(name)
            self._bookies[bookie_id] = BookieRegistration(
                bookie_id, address or ADDRESS, 1, location=location
            )
        self._policy = SpreadPolicy()
        self._rng = Random(1)

    def play(self, words: Sequence[str]) -> list[str]:
        match words:
            case ["place", name]:
                place = self._bookies[BookieId(name)].place
                return [f"rack {place.rack} host {place.host}"]
            case ["new"]:
                chosen = self._policy.new_ensemble(self._quorum, self._bookies, {}, self._rng)
                return [_show(chosen) if isinstance(chosen, Shortage) else self._spread(chosen)]
            case ["replace", positions, "of", ensemble, *rest]:
                excluded = dict.fromkeys(w.parse_bookies(",".join(rest[1:])), "test")
                at = frozenset(int(part) for part in positions.split(","))
                members = w.parse_bookies(ensemble)
                found = self._policy.replacements(
                    self._quorum, members, at, self._bookies, excluded, self._rng
                )
                if isinstance(found, Shortage):
                    return [_show(found)]
                return [f"chosen {' '.join(f'{p}={b}' for p, b in found.items())}"]
            case _:
                raise ValueError(f"unknown event: {' '.join(words)}")

    def _spread(self, ensemble: Sequence[BookieId]) -> str:
        size, width = len(ensemble), self._quorum.write_quorum
        racks: list[int] = []
        hosts: list[int] = []
        for start in range(size):
            members = [ensemble[(start + i) % size] for i in range(width)]
            places = [self._bookies[member].place for member in members]
            racks.append(len(dict.fromkeys(place.rack for place in places)))
            hosts.append(len(dict.fromkeys(places)))
        return f"every write set: at least {min(racks)} racks, {min(hosts)} hosts"


def _show(shortage: Shortage) -> str:
    return f"shortage needed={shortage.needed} seen={shortage.seen}"
