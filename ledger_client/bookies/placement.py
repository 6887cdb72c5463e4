"""Placement among the bookies that are up, avoiding those that failed recently.

Leaves the choice itself to `ledger_client.bookies.placement_policy`, and the definition of a
failure to the client.

Invariants: a bookie in quarantine is chosen only if there would be a shortage otherwise; a policy
that raises, or whose choice cannot be used, causes a shortage and has no other effect: no other
policy decides in its place, which could break a rule on where data may be stored.

Source: protocol rules 5.1 and 5.7.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final, Protocol, TypeVar

from ledger_client.bookies.placement_policy import PlacementPolicy, Shortage, SpreadPolicy
from metadata.errors import MetadataError
from metadata.ids import BookieId
from metadata.ledgers.ledger_metadata import QuorumSpec
from metadata.registry.registration import BookieRegistration

__all__ = ["BookiesUp", "Placement", "PlacementPolicy", "Shortage", "SpreadPolicy"]


BOOKIES_MAX: Final = 10_000
SHORTEST_S: Final = 5.0
MEMORY_FACTOR: Final = 2.0
"""A failure is dropped after this multiple of the longest quarantine without another failure."""
_DOUBLINGS_MAX: Final = 16


@dataclass(slots=True)
class _Record:
    failure_count: int
    last_failure_at: float
    until: float
    reason: str


class Quarantine:
    """Avoided bookies, with start and reason. Sees no clock.

    Each failure within the memory doubles the quarantine, up to a maximum; every quarantine ends by
    itself; at most `BOOKIES_MAX` bookies are recorded.
    """

    def __init__(self, longest_s: float, *, shortest_s: float = SHORTEST_S) -> None:
        self._longest_s = longest_s
        self._shortest_s = min(shortest_s, longest_s)
        self._records: dict[BookieId, _Record] = {}

    def record_failure(self, bookie_id: BookieId, reason: str, now: float) -> float:
        """Record a failure; return the time until which the bookie is avoided."""
        record = self._records.pop(
            bookie_id, None
        )  # moved to the end: the oldest failure stays first
        count = 1
        if record is not None and now - record.last_failure_at < MEMORY_FACTOR * self._longest_s:
            count = record.failure_count + 1
        doublings = min(count - 1, _DOUBLINGS_MAX)
        until = now + min(self._shortest_s * (1 << doublings), self._longest_s)
        if len(self._records) >= BOOKIES_MAX:
            del self._records[next(iter(self._records))]
        self._records[bookie_id] = _Record(count, now, until, reason)
        return until

    def reason(self, bookie_id: BookieId, now: float) -> str | None:
        """Return why a bookie is avoided now, or None."""
        record = self._records.get(bookie_id)
        if record is None or now >= record.until:
            return None
        return f"in quarantine for another {record.until - now:.0f} s: {record.reason}"

    def release(self, bookie_id: BookieId) -> None:
        """Drop a bookie's failures: another process answers for it now."""
        self._records.pop(bookie_id, None)


LOOK_AGAIN_S: Final = 1.0
NONE_EXCLUDED: Mapping[BookieId, str] = {}
ChosenT = TypeVar("ChosenT", tuple[BookieId, ...], Mapping[int, BookieId])


Failed = Callable[[str, Exception], None]


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
        on_failed: Failed = lambda _what, _error: None,
    ) -> None:
        """Create the placement. `on_failed` is called with each exception of the policy."""
        self._directory = directory
        self._quarantine = quarantine
        self._policy: PlacementPolicy = policy or SpreadPolicy()
        self._rng = rng
        self._on_failed = on_failed
        self._refresh_count = 0
        self._refreshing = asyncio.Lock()

    async def refresh(self) -> None:
        """Read the registrations again, for a limited time. A bookie that has just joined becomes
        known with a delay, and a caller that would otherwise fail must not miss it. Callers that
        wait at the same time share one read that begins after their calls.
        """
        begun = self._refresh_count
        async with self._refreshing:
            if self._refresh_count > begun:
                return
            self._refresh_count += 1
            try:
                async with asyncio.timeout(LOOK_AGAIN_S):
                    await self._directory.refresh()
            except (MetadataError, TimeoutError):
                return

    def new_ensemble(
        self, quorum: QuorumSpec, excluded: Mapping[BookieId, str] = NONE_EXCLUDED
    ) -> tuple[BookieId, ...] | Shortage:
        """Return the bookies of a new ensemble, in order."""
        bookies, size = self._directory.bookies, quorum.ensemble_size

        def choose(avoided: Mapping[BookieId, str]) -> tuple[BookieId, ...] | Shortage:
            chosen = self._policy.new_ensemble(quorum, bookies, avoided, self._rng)
            if not isinstance(chosen, Shortage):
                _check(chosen, size, bookies)
            return chosen

        return self._choose(choose, size, excluded)

    def replacements(
        self,
        quorum: QuorumSpec,
        ensemble: tuple[BookieId, ...],
        positions: frozenset[int],
        excluded: Mapping[BookieId, str] = NONE_EXCLUDED,
    ) -> Mapping[int, BookieId] | Shortage:
        """Return another bookie for each of the failed positions of an ensemble."""
        quorum = quorum.with_members(len(ensemble)) if quorum.is_in_sync else quorum
        bookies, policy = self._directory.bookies, self._policy

        def choose(avoided: Mapping[BookieId, str]) -> Mapping[int, BookieId] | Shortage:
            args = quorum, ensemble, positions, bookies, avoided, self._rng
            chosen = policy.replacements(*args)
            if not isinstance(chosen, Shortage):
                if chosen.keys() != positions:
                    raise ValueError(f"it chose {dict(chosen)} for positions {sorted(positions)}")
                _check(chosen.values(), len(positions), bookies, ensemble)
            return chosen

        return self._choose(choose, len(positions), excluded)

    def most_replacements(
        self,
        quorum: QuorumSpec,
        ensemble: tuple[BookieId, ...],
        positions: tuple[int, ...],
        excluded: Mapping[BookieId, str] = NONE_EXCLUDED,
    ) -> Mapping[int, BookieId] | Shortage:
        """Replace all failed positions, or as many as there are bookies for."""
        chosen = self.replacements(quorum, ensemble, frozenset(positions), excluded)
        while isinstance(chosen, Shortage) and not chosen.failure and len(positions) > 1:
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
            registration.writable and bookie_id not in ensemble and bookie_id not in avoided
            for bookie_id, registration in self._directory.bookies.items()
        )

    def _choose(
        self,
        choose: Callable[[Mapping[BookieId, str]], ChosenT | Shortage],
        needed: int,
        excluded: Mapping[BookieId, str],
    ) -> ChosenT | Shortage:
        """Choose without the avoided bookies, and with them if there are too few others."""
        avoided = self._avoided(excluded)
        try:
            chosen = choose(avoided)
            if isinstance(chosen, Shortage) and len(avoided) > len(excluded):
                chosen = choose(excluded)
        except Exception as error:  # noqa: BLE001 - the caller gets it as a shortage
            self._on_failed("policy", error)
            why = f"the policy {type(self._policy).__name__} raised {type(error).__name__}: {error}"
            return Shortage(needed, len(self._directory.bookies), excluded, failure=why)
        return chosen

    def _avoided(self, excluded: Mapping[BookieId, str]) -> dict[BookieId, str]:
        now = asyncio.get_running_loop().time()
        avoided = dict(excluded)
        for bookie_id in self._directory.bookies:
            why = self._quarantine.reason(bookie_id, now)
            if why is not None:
                avoided.setdefault(bookie_id, why)
        return avoided


def _check(
    chosen: Collection[BookieId],
    needed: int,
    bookies: Mapping[BookieId, BookieRegistration],
    members: tuple[BookieId, ...] = (),
) -> None:
    """Raise ValueError for a choice that cannot be stored."""
    is_new = all(bookie in bookies and bookie not in members for bookie in chosen)
    if not is_new or len(chosen) != needed or len(frozenset(chosen)) != needed:
        text = f"it chose {list(chosen)} instead of {needed} distinct candidates"
        raise ValueError(text + (f" that are not in {list(members)}" if members else ""))
