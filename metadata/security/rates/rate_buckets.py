"""What clients have used of their rates. Pure.

Leaves the rates to `quota_rules`, and the pauses to the connections.

Invariants: over any time a client uses at most its rate, one burst, and what it had begun before
its pause; at most `kept_max` clients are kept, and the longest unused one is dropped first.

Source: KIP-13, KIP-219 (answer at once, then do not read).
"""

from collections.abc import Hashable
from typing import Final

BURST_S: Final = 1.0
"""A client that was idle may use its rate of this many seconds at once."""
THROTTLE_S_MAX: Final = 30.0
"""Maximum pause after one request, unless a server has its own; the rest is paid after the next
ones.
"""
CLIENTS_MAX: Final = 10_000


class RateBuckets:
    """What each client owes: what it has used above its rate."""

    __slots__ = ("_burst_s", "_kept_max", "_owed", "_throttle_s_max")

    def __init__(
        self,
        burst_s: float = BURST_S,
        kept_max: int = CLIENTS_MAX,
        throttle_s_max: float = THROTTLE_S_MAX,
    ) -> None:
        self._burst_s = burst_s
        self._throttle_s_max = throttle_s_max
        self._kept_max = kept_max
        self._owed: dict[Hashable, tuple[float, float]] = {}
        """client -> (what it owes, time of that value), the longest unused one first"""

    def __len__(self) -> int:
        """Return the number of clients that are kept."""
        return len(self._owed)

    def record(self, client: Hashable, count: float, per_s: float, now_s: float) -> float:
        """Record what a client has used; return for how many seconds it must not be read."""
        owed = self._owed_now(client, per_s, now_s) + count
        self._keep(client, owed, now_s)
        return self._pause_s(owed, per_s)

    def pause_s(self, client: Hashable, more: float, per_s: float, now_s: float) -> float:
        """Return what `record` would return if a client had used `more`; record nothing."""
        owed = self._owed_now(client, per_s, now_s)
        self._keep(client, owed, now_s)
        return self._pause_s(owed + more, per_s)

    def take(self, client: Hashable, count: float, per_s: float, now_s: float) -> bool:
        """Record what a client is about to use if it is within its burst; return whether it is."""
        owed = self._owed_now(client, per_s, now_s)
        is_within = owed + count <= per_s * self._burst_s
        self._keep(client, owed + count if is_within else owed, now_s)
        return is_within

    def _pause_s(self, owed: float, per_s: float) -> float:
        return min(self._throttle_s_max, max(0.0, owed / per_s - self._burst_s))

    def _owed_now(self, client: Hashable, per_s: float, now_s: float) -> float:
        owed, since_s = self._owed.pop(client, (0.0, now_s))
        return max(0.0, owed - (now_s - since_s) * per_s)

    def _keep(self, client: Hashable, owed: float, now_s: float) -> None:
        while len(self._owed) >= self._kept_max:
            self._owed.pop(next(iter(self._owed)))
        self._owed[client] = (owed, now_s)
