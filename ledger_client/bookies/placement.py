"""Placement among the bookies that are up, avoiding those that failed recently.

Leaves the choice itself to `ledger_client.bookies.placement_policy`.

Invariants: a bookie in quarantine is chosen only if there would be a shortage otherwise.

Source: protocol rules 5.1 and 5.7.
"""

import asyncio
from collections.abc import Mapping
from random import Random
from typing import Final, Protocol

from ledger_client.bookies.placement_policy import PlacementPolicy, Shortage, SpreadPolicy
from ledger_client.bookies.quarantine import Quarantine
from metadata.errors import MetadataError
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import QuorumSpec
from metadata.registry.registration import BookieRegistration

__all__ = ["BookiesUp", "Placement", "PlacementPolicy", "Shortage", "SpreadPolicy"]

LOOK_AGAIN_S: Final = 1.0
NONE_EXCLUDED: Mapping[BookieId, str] = {}


class BookiesUp(Protocol):
    """Directory of registered bookies (`metadata.registry.registry.BookieDirectory`)."""

    @property
    def bookies(self) -> Mapping[BookieId, BookieRegistration]:
        """The live bookies, including those that are not writable."""

    async def refresh(self) -> None:
        """Read the registrations again. Raises MetadataError."""


class Placement:
    """Placement of one client."""

    def __init__(
        self,
        directory: BookiesUp,
        quarantine: Quarantine,
        rng: Random,
        policy: PlacementPolicy | None = None,
    ) -> None:
        self._directory = directory
        self._quarantine = quarantine
        self._policy: PlacementPolicy = policy or SpreadPolicy()
        self._rng = rng

    async def refresh(self) -> None:
        """Read the registrations again, for a limited time. A bookie that has just joined becomes
        known with a delay, and a caller that would otherwise fail must not miss it.
        """
        try:
            async with asyncio.timeout(LOOK_AGAIN_S):
                await self._directory.refresh()
        except (MetadataError, TimeoutError):
            return

    def new_ensemble(
        self, quorum: QuorumSpec, excluded: Mapping[BookieId, str] = NONE_EXCLUDED
    ) -> tuple[BookieId, ...] | Shortage:
        """Return the bookies of a new ensemble, in order."""
        bookies = self._directory.bookies
        avoided = self._avoided(excluded)
        chosen = self._policy.new_ensemble(quorum, bookies, avoided, self._rng)
        if isinstance(chosen, Shortage) and len(avoided) > len(excluded):
            chosen = self._policy.new_ensemble(quorum, bookies, excluded, self._rng)
        return chosen

    def replacements(
        self,
        quorum: QuorumSpec,
        ensemble: tuple[BookieId, ...],
        positions: frozenset[int],
        excluded: Mapping[BookieId, str] = NONE_EXCLUDED,
    ) -> Mapping[int, BookieId] | Shortage:
        """Return another bookie for each of the failed positions of an ensemble."""
        quorum = quorum.with_members(len(ensemble)) if quorum.is_in_sync else quorum
        bookies = self._directory.bookies
        avoided = self._avoided(excluded)
        chosen = self._policy.replacements(quorum, ensemble, positions, bookies, avoided, self._rng)
        if isinstance(chosen, Shortage) and len(avoided) > len(excluded):
            chosen = self._policy.replacements(
                quorum, ensemble, positions, bookies, excluded, self._rng
            )
        return chosen

    def most_replacements(
        self,
        quorum: QuorumSpec,
        ensemble: tuple[BookieId, ...],
        positions: tuple[int, ...],
        excluded: Mapping[BookieId, str] = NONE_EXCLUDED,
    ) -> Mapping[int, BookieId] | Shortage:
        """Replace all failed positions, or as many as there are bookies for."""
        chosen = self.replacements(quorum, ensemble, frozenset(positions), excluded)
        while isinstance(chosen, Shortage) and len(positions) > 1:
            positions = positions[:-1]
            fewer = self.replacements(quorum, ensemble, frozenset(positions), excluded)
            chosen = chosen if isinstance(fewer, Shortage) else fewer
        return chosen

    def has_spare(
        self,
        ensemble: tuple[BookieId, ...],
        excluded: Mapping[BookieId, str] = NONE_EXCLUDED,
    ) -> bool:
        """Return whether a good bookie is up that could replace a member; a suspicion needs one."""
        avoided = self._avoided(excluded)
        return any(
            each.writable and bookie_id not in ensemble and bookie_id not in avoided
            for bookie_id, each in self._directory.bookies.items()
        )

    def _avoided(self, excluded: Mapping[BookieId, str]) -> dict[BookieId, str]:
        now = asyncio.get_running_loop().time()
        avoided = dict(excluded)
        for bookie_id in self._directory.bookies:
            why = self._quarantine.reason(bookie_id, now)
            if why is not None:
                avoided.setdefault(bookie_id, why)
        return avoided
