"""Decides for how long a client that moves too many bytes is not read (Kafka's quotas).

Leaves not reading to `connection`; an answer says how long in its `throttle_time_ms`.

Invariants: pure; over any time a client moves at most its rate and one burst; the clients that are
remembered are bounded, and the one forgotten is the one that was away longest.

Source: KIP-13, KIP-219 (answer at once, then do not read).
"""

from typing import Final

BURST_S: Final = 1.0
"""A client that was idle may move this many seconds' worth at once."""
THROTTLE_S_MAX: Final = 30.0
CLIENTS_MAX: Final = 10_000


class ByteRateQuota:
    """One rate for each client id. A rate of 0 means that there is none."""

    __slots__ = ("_bytes_per_s", "_owed")

    def __init__(self, bytes_per_s: int) -> None:
        self._bytes_per_s = bytes_per_s
        self._owed: dict[str, tuple[float, float]] = {}
        """client id -> (bytes beyond what its rate allows, when that was)"""

    @property
    def is_unlimited(self) -> bool:
        """Tell whether nobody is ever throttled."""
        return not self._bytes_per_s

    def record(self, client_id: str, count: int, now_s: float) -> float:
        """Note bytes moved; return for how many seconds the client must be left alone."""
        if not self._bytes_per_s:
            return 0.0
        owed, since_s = self._owed.pop(client_id, (0.0, now_s))
        owed = max(0.0, owed - (now_s - since_s) * self._bytes_per_s) + count
        while len(self._owed) >= CLIENTS_MAX:
            self._owed.pop(next(iter(self._owed)))
        self._owed[client_id] = (owed, now_s)
        return min(THROTTLE_S_MAX, max(0.0, owed / self._bytes_per_s - BURST_S))
