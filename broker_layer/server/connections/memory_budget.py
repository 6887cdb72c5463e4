"""Counts the bytes that all connections hold for requests, and says who may read more.

Leaves pausing sockets to `connection`.

Invariants: a holder gives back exactly what it took; whoever waits is let go on in the order in
which it came, and only while there is room. What is taken may go beyond the bound by one frame
or by one receive buffer for each connection, never by more.
"""

from collections.abc import Callable


class MemoryBudget:
    """The bytes of requests in memory, of all connections of one broker."""

    __slots__ = ("_bytes_max", "_waiting", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: dict[int, Callable[[], None]] = {}
        self.used_bytes = 0

    @property
    def is_full(self) -> bool:
        """Tell whether nobody should read more."""
        return self.used_bytes >= self._bytes_max

    @property
    def waiting_count(self) -> int:
        """How many wait for room."""
        return len(self._waiting)

    def take(self, count: int) -> None:
        """Count bytes in."""
        self.used_bytes += count

    def give_back(self, count: int) -> None:
        """Count bytes out; those that wait are called while there is room."""
        assert self.used_bytes >= count, "more is given back than was taken"
        self.used_bytes -= count
        while self._waiting and not self.is_full:
            self._waiting.pop(next(iter(self._waiting)))()

    def wait(self, holder: int, go_on: Callable[[], None]) -> None:
        """Have `go_on` called once there is room; a holder waits once."""
        self._waiting.setdefault(holder, go_on)

    def forget(self, holder: int) -> None:
        """Call a holder no more."""
        self._waiting.pop(holder, None)
