"""Standing of each bookie for repair: good, draining, unproven or gone. Pure.

Invariants: a bookie without a stored state is good, unless it is among those that count as gone for
the ledgers that have one good copy left. Not being registered is not enough to be gone.

Source: protocol rules 9.5, 9.6 and 9.13.
"""

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType

from metadata.ids import BookieId
from metadata.repair.lifecycle import Lifecycle


class Standing(StrEnum):
    """Standing of one bookie."""

    GOOD = "good"
    DRAINING = "draining"
    """Its copies are good, and are moved elsewhere."""
    UNPROVEN = "unproven"
    """It may have lost entries. What it returns is good, and its copies do not count."""
    GONE = "gone"
    """Its copies do not count."""


@dataclass(frozen=True, slots=True)
class Standings:
    """Standings of all bookies; those that it does not name are good."""

    by_bookie: Mapping[BookieId, Standing] = field(default_factory=lambda: MappingProxyType({}))
    registered: Container[BookieId] | None = None
    """If given, a bookie that is not in it is gone, unless it is among the stopped."""
    stopped: Container[BookieId] = frozenset()
    """Bookies that stopped in order: they are not gone before they are stored as lost."""

    def of(self, bookie_id: BookieId) -> Standing:
        """Return the standing of a bookie."""
        is_registered = self.registered is None or bookie_id in self.registered
        if not is_registered and bookie_id not in self.stopped:
            return Standing.GONE
        return self.by_bookie.get(bookie_id, Standing.GOOD)

    def has_copy(self, bookie_id: BookieId) -> bool:
        """Return whether the copies of a bookie count."""
        return self.of(bookie_id) not in (Standing.UNPROVEN, Standing.GONE)

    def with_gone(self, bookies: Collection[BookieId]) -> "Standings":
        """Return the standings with these bookies gone too."""
        gone = dict.fromkeys(bookies, Standing.GONE)
        by_bookie = MappingProxyType({**self.by_bookie, **gone})
        return Standings(by_bookie, self.registered, self.stopped)


def standing_of(state: Lifecycle, *, is_up: bool) -> Standing:
    """Return the standing that follows from a bookie's stored state, and from whether it is
    registered. A lost bookie that is registered has returned. One whose record cannot be read
    cannot be stored as lost, so it counts as gone when it is not registered.
    """
    match state:
        case Lifecycle.ACTIVE:
            return Standing.GOOD
        case Lifecycle.DRAINING | Lifecycle.DRAINED:
            return Standing.DRAINING if is_up else Standing.GONE
        case Lifecycle.LOST | Lifecycle.UNREADABLE:
            return Standing.GOOD if is_up else Standing.GONE
        case Lifecycle.LIMBO:
            return Standing.UNPROVEN if is_up else Standing.GONE
        case Lifecycle.REMOVED:
            return Standing.GONE
