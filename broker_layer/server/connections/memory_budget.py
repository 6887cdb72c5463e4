"""Budget of the memory that all connections use for requests.

Leaves pausing sockets to `connection`.

Invariants: a holder releases exactly the bytes that it took; waiting holders continue in the order
in which they came, and only while there is room. The used bytes exceed the limit by at most one
frame or one receive buffer per connection.
"""

from collections.abc import Callable


class MemoryBudget:
    """Memory budget of all connections of one broker."""

    __slots__ = ("_bytes_max", "_waiting", "used_bytes")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: dict[int, Callable[[], None]] = {}
        self.used_bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no connection should read more."""
        return self.used_bytes >= self._bytes_max

    @property
    def waiting_count(self) -> int:
        """The number of holders that wait for room."""
        return len(self._waiting)

    def take(self, count: int) -> None:
        """Add `count` to the used bytes."""
        self.used_bytes += count

    def give_back(self, count: int) -> None:
        """Release `count` bytes; call waiting holders while there is room."""
        assert self.used_bytes >= count, "more bytes are released than were taken"
        self.used_bytes -= count
        while self._waiting and not self.is_full:
            self._waiting.pop(next(iter(self._waiting)))()

    def wait(self, holder: int, resume: Callable[[], None]) -> None:
        """Call `resume` once there is room; a holder that waits already is ignored."""
        self._waiting.setdefault(holder, resume)

    def cancel_wait(self, holder: int) -> None:
        """Remove a holder from the waiting ones."""
        self._waiting.pop(holder, None)
