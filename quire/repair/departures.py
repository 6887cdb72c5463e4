"""Which bookies count as gone or unproven: by how long they were missing, and by limbo. Pure.

Source: protocol rules 9.5, 9.6 and 9.13; docs/repair.md, "When a bookie is lost".
"""

from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from metadata.ids import BookieId
from metadata.registry.registration import BookieRegistration
from metadata.repair.lifecycle import Lifecycle
from quire.repair.standing import Standing, Standings

TRUSTED: Final = (Lifecycle.ACTIVE, Lifecycle.DRAINING, Lifecycle.LOST)
"""States in which the copies of a bookie that is registered count."""
LIMBO_REASON: Final = "it may have lost stored data, so its copies are not proven"


@dataclass(frozen=True, slots=True)
class StateChange:
    """A change of a bookie's stored state, with its reason."""

    bookie_id: BookieId
    before: Lifecycle
    """State for which the change was decided: in another one it is not made."""
    to: Lifecycle
    reason: str


@dataclass(frozen=True, slots=True)
class Delays:
    """Times until a missing bookie counts as gone, in seconds."""

    lost_after_s: float
    urgent_after_s: float
    """For ledgers that have one good copy left without it, unless it stopped in order."""


@dataclass(frozen=True, slots=True)
class DeparturesSeen:
    """Result of one look."""

    changes: tuple[StateChange, ...]
    standings: Standings
    urgent: tuple[BookieId, ...]
    """Bookies that count as gone only for ledgers with one good copy left."""
    due_s: float | None
    """Time of the next change if nothing happens before; None if there is none."""


class Departures:
    """Bookies that are missing, since when. Pure.

    A bookie is lost only after it was missing at every look for `lost_after_s`, on the clock of one
    auditor; a new auditor starts the time again. A bookie that is registered again is not lost any
    more. A bookie that stopped in order waits for `lost_after_s`, whatever depends on it; one that
    crashed does not, nor one that started after its stop and then crashed. Bookies that drain, or
    are removed, keep their state while they are missing. A bookie that is registered in limbo gets
    that state, and keeps it until it is drained or lost.
    """

    def __init__(self) -> None:
        self._missing_since: dict[BookieId, float] = {}

    def look(
        self,
        known: Collection[BookieId],
        registered: Mapping[BookieId, BookieRegistration],
        states: Mapping[BookieId, Lifecycle],
        stopped: Container[BookieId],
        delays: Delays,
        now_s: float,
    ) -> DeparturesSeen:
        """Compare the bookies that exist with the registered ones.

        `stopped` has the unregistered bookies that announced an orderly stop. It is read after the
        registrations.
        """
        self._follow(known, registered, now_s)
        changes: list[StateChange] = []
        standings: dict[BookieId, Standing] = {}
        urgent: list[BookieId] = []
        dues: list[float] = []
        for bookie_id in known:
            state = states.get(bookie_id, Lifecycle.ACTIVE)
            since = self._missing_since.get(bookie_id)
            urgent_after_s = delays.lost_after_s if bookie_id in stopped else delays.urgent_after_s
            if since is not None:
                dues += [
                    since + delay
                    for delay in (delays.lost_after_s, urgent_after_s)
                    if since + delay > now_s
                ]
            is_lost = since is not None and now_s - since >= delays.lost_after_s
            is_in_limbo = bookie_id in registered and registered[bookie_id].is_in_limbo
            if is_in_limbo and state in TRUSTED:
                changes.append(StateChange(bookie_id, state, Lifecycle.LIMBO, LIMBO_REASON))
                state = Lifecycle.LIMBO
            elif state is Lifecycle.LOST and since is None:
                reason = "it is registered again"
                changes.append(StateChange(bookie_id, state, Lifecycle.ACTIVE, reason))
            elif state in (Lifecycle.ACTIVE, Lifecycle.LIMBO) and is_lost:
                reason = f"it was missing for {delays.lost_after_s:g} s"
                changes.append(StateChange(bookie_id, state, Lifecycle.LOST, reason))
                state = Lifecycle.LOST
            standing = _standing(state, is_missing=since is not None, is_lost=is_lost)
            if standing is not Standing.GOOD:
                standings[bookie_id] = standing
            is_urgent = since is not None and now_s - since >= urgent_after_s
            if is_urgent and standing is not Standing.GONE:
                urgent.append(bookie_id)
        due_s = min(dues, default=None)
        return DeparturesSeen(
            tuple(changes), Standings(MappingProxyType(standings)), tuple(urgent), due_s
        )

    def away(self, standings: Standings) -> dict[BookieId, float]:
        """Return the bookies that were missing at the last look and do not count as gone, and since
        when. `standings` are those of that look.
        """
        missing = self._missing_since.items()
        return {bookie: since for bookie, since in missing if standings.of(bookie) is Standing.GOOD}

    def _follow(
        self,
        known: Collection[BookieId],
        registered: Mapping[BookieId, BookieRegistration],
        now_s: float,
    ) -> None:
        missing = [bookie for bookie in known if bookie not in registered]
        self._missing_since = {bookie: self._missing_since.get(bookie, now_s) for bookie in missing}


def _standing(state: Lifecycle, *, is_missing: bool, is_lost: bool) -> Standing:
    match state:
        case Lifecycle.REMOVED:
            return Standing.GONE
        case Lifecycle.LOST:
            return Standing.GONE if is_missing else Standing.GOOD
        case Lifecycle.DRAINING | Lifecycle.DRAINED:
            return Standing.GONE if is_lost else Standing.DRAINING
        case Lifecycle.LIMBO:
            return Standing.UNPROVEN
        case Lifecycle.ACTIVE:
            return Standing.GOOD
        case Lifecycle.UNREADABLE:
            return Standing.GONE if is_lost else Standing.GOOD
