"""Throttles of the bookies that copies are read from or stored on.

Leaves one throttle to `ledger_client.copying`, and the rates to `copy_shares`.

Invariants: a throttle is kept until what it admitted has passed, so that copies that follow each
other share it. A source is known only when it has answered, so each copy may be one request ahead
of the ceiling of its source.

Source: protocol rule 9.3; docs/repair.md, "Limits".
"""

from typing import Final

from ledger_client.copying import CopyThrottle
from metadata.ids import BookieId
from quire.repair.pacing.slow_bookies import SlowBookies

UNLIMITED_BYTES_PER_S: Final = 100_000_000
"""Ceiling of a bookie of which a part is used when there is no ceiling, in bytes per second."""


class BookieThrottles:
    """Throttles of bookies in one direction, each with the same ceiling."""

    def __init__(self, slow: SlowBookies) -> None:
        self._slow = slow
        self._bytes_per_s: float | None = None
        self._share = 1.0
        self._throttles: dict[BookieId, CopyThrottle] = {}

    @property
    def bookies(self) -> tuple[BookieId, ...]:
        """Bookies that copies used lately."""
        return tuple(self._throttles)

    def limit(self, bytes_per_s: int, share: float) -> None:
        """Change the ceiling of each bookie, and this worker's share of it. 0 for no ceiling."""
        self._bytes_per_s = bytes_per_s or None
        self._share = share
        self.refresh()

    def refresh(self) -> None:
        """Use the current parts of slow bookies for requests from now on."""
        for bookie_id, throttle in self._throttles.items():
            throttle.limit(self._rate_of(bookie_id))

    def take(self, bookie_id: BookieId, size: int, now: float) -> float:
        """Count `size` bytes of a bookie; return the seconds to wait before they are used."""
        if bookie_id not in self._throttles:
            kept = {each: t for each, t in self._throttles.items() if t.left_s(now)}
            self._throttles = kept | {bookie_id: CopyThrottle(self._rate_of(bookie_id))}
        return self._throttles[bookie_id].take(size, now)

    def left_s(self, bookie_id: BookieId, now: float) -> float:
        """Return the seconds until all that was counted of a bookie has passed."""
        throttle = self._throttles.get(bookie_id)
        return 0.0 if throttle is None else throttle.left_s(now)

    def _rate_of(self, bookie_id: BookieId) -> float | None:
        part, ceiling = self._slow.part(bookie_id), self._bytes_per_s
        if ceiling is None and part == 1.0:
            return None
        return (UNLIMITED_BYTES_PER_S if ceiling is None else ceiling) * self._share * part


class CopyPath:
    """Throttle of one copy: the slowest of the cluster's, its target's and its source's."""

    def __init__(
        self,
        cluster: CopyThrottle,
        target: BookieId,
        targets: BookieThrottles,
        sources: BookieThrottles,
    ) -> None:
        self._cluster = cluster
        self._target = target
        self._targets = targets
        self._sources = sources
        self._source: BookieId | None = None
        """Source of the last request."""

    def take(self, size: int, now: float, source: BookieId | None) -> float:
        """Count `size` bytes in all of them; return the seconds to wait before they are used."""
        waits = [self._cluster.take(size, now), self._targets.take(self._target, size, now)]
        if source is not None:
            waits.append(self._sources.take(source, size, now))
        self._source = source
        return max(waits)

    def left_s(self, now: float) -> float:
        """Return the seconds until all that was counted has passed in all of them."""
        lefts = [self._cluster.left_s(now), self._targets.left_s(self._target, now)]
        if self._source is not None:
            lefts.append(self._sources.left_s(self._source, now))
        return max(lefts)
