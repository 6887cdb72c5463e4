"""Pool of reusable buffers for large frames.

A new buffer of a megabyte costs more than receiving into it: it is cleared, and its pages are
allocated. Leaves receiving to `bookie.wire.frames`.

Invariants: a lent buffer has one user; a pool keeps at most its limit of bytes, and above it drops
a buffer instead of waiting for it.
"""

from collections import deque
from typing import Final

POOLED_BYTES_MIN: Final = 128 * 1024
"""Minimum size of a pooled body. Smaller ones are cheap to create."""
ROUNDED_TO_BYTES: Final = 16 * 1024
WASTE_SHARE_MAX: Final = 0.25
"""Maximum unused part of a lent buffer, as a share of the body's size."""
CHECKED_MAX: Final = 4
"""Number of the oldest buffers that are checked: they become free approximately in the order in
which they were lent.
"""


class BodyPool:
    """Buffers of all connections to one bookie, for one event loop."""

    __slots__ = ("_bytes", "_bytes_max", "_lent")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._lent: deque[bytearray] = deque()

    def new(self, size: int) -> memoryview:
        """Return a view of `size` bytes of any content, from the pool if they are many."""
        return memoryview(bytearray(size)) if size < POOLED_BYTES_MIN else self.take(size)

    def grow(self, body: memoryview, bytes_max: int) -> memoryview:
        """Return a copy of a body with room for twice its size, at most `bytes_max`. The old one is
        not resized: a transport may still have a view of it.
        """
        grown = self.new(min(bytes_max, 2 * len(body)))
        grown[: len(body)] = body
        return grown

    def take(self, size: int) -> memoryview:
        """Return a view of `size` bytes of any content. They are lent until this view and all views
        made from it are released.
        """
        for _ in range(min(CHECKED_MAX, len(self._lent))):
            body = self._lent.popleft()
            if not _is_free(body):
                self._lent.appendleft(body)
                break
            if size <= len(body) <= (1 + WASTE_SHARE_MAX) * size:
                self._lent.append(body)
                return memoryview(body)[:size]
            self._bytes -= len(body)
        body = bytearray(-(-size // ROUNDED_TO_BYTES) * ROUNDED_TO_BYTES)
        self._bytes += len(body)
        self._lent.append(body)
        while self._bytes > self._bytes_max:
            self._bytes -= len(self._lent.popleft())
        return memoryview(body)[:size]


def _is_free(body: bytearray) -> bool:
    """Return whether no view of a buffer is left: a buffer with views cannot change its size."""
    try:
        last = body.pop()
    except BufferError:
        return False
    body.append(last)
    return True
