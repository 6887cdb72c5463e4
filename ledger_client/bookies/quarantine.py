"""Record of bookies that failed recently, so that new ensembles avoid them for a while.

Leaves the definition of a failure to the client, and the choice of bookies to
`ledger_client.bookies.placement`.

Invariants: pure, time is an argument; each failure within the memory doubles the quarantine, up to
a maximum; every quarantine ends by itself; at most `BOOKIES_MAX` bookies are recorded.

Source: protocol rule 5.1.
"""

from dataclasses import dataclass
from typing import Final

from metadata.ids import BookieId

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
    """Avoided bookies, with start and reason."""

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
