"""Byte rate quotas of clients, as in Kafka.

Leaves pausing a connection to `connection`; the answer contains the pause as `throttle_time_ms`.

Invariants: pure; over any time a client moves at most its rate and one burst; at most CLIENTS_MAX
clients are kept, and the longest idle one is dropped first.

Source: KIP-13, KIP-219 (answer at once, then do not read).
"""

from typing import Final

BURST_S: Final = 1.0
"""A client that was idle may move the bytes of this many seconds at once."""
THROTTLE_S_MAX: Final = 30.0
CLIENTS_MAX: Final = 10_000


class ByteRateQuota:
    """One rate for each client id; a rate of 0 means no limit."""

    __slots__ = ("_bytes_per_s", "_owed")

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._owed: dict[str, tuple[float, float]] = {}
        """client id -> (bytes above its rate, time of that value)"""

    @property
    def is_unlimited(self) -> bool:
        """Whether no client is ever throttled."""
        return not self._bytes_per_s

    def record(self, client_id: str, count: int, now_s: float) -> float:
        """Record moved bytes; return for how many seconds the client must not be read."""
        if not self._bytes_per_s:
            return 0.0
        owed, since_s = self._owed.pop(client_id, (0.0, now_s))
        owed = max(0.0, owed - (now_s - since_s) * self._bytes_per_s) + count
        while len(self._owed) >= CLIENTS_MAX:
            self._owed.pop(next(iter(self._owed)))
        self._owed[client_id] = (owed, now_s)
        return min(THROTTLE_S_MAX, max(0.0, owed / self._bytes_per_s - BURST_S))
