"""Lends the buffers that large frames are received into, and lends them again.

A fresh buffer of a megabyte costs more than receiving into it: it is cleared, and its pages are
made anew. Leaves what is received to `bookie.wire.frames`.

Invariants: nobody else sees a buffer that is lent; a pool keeps no more than its bound, and then
forgets a buffer rather than wait for it.
"""

from collections import deque
from typing import Final

POOLED_BYTES_MIN: Final = 128 * 1024
"""Smaller bodies are cheap to make."""
ROUNDED_TO_BYTES: Final = 16 * 1024
WASTE_SHARE_MAX: Final = 0.25
"""A buffer is lent for a body that leaves no more of it unused."""
LOOKS_MAX: Final = 4
"""The oldest so many are looked at: they are given back about in the order in which they went."""


class BodyPool:
    """The buffers of all connections to one bookie; belongs to one event loop."""

    __slots__ = ("_bytes", "_bytes_max", "_lent")

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._lent: deque[bytearray] = deque()

    def take(self, size: int) -> memoryview:
        """Return a view of `size` bytes, with anything in them. They are lent until this view and
        all that were made of it are gone.
        """
        for _ in range(min(LOOKS_MAX, len(self._lent))):
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
    """Return whether no view of a buffer is left: one that has views refuses to change its size."""
    try:
        last = body.pop()
    except BufferError:
        return False
    body.append(last)
    return True
