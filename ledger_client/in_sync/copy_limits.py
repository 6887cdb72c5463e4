"""Limits and progress of copying.

Leaves copying to `copying.py`.

Invariants: over any period, at most one request more than the rate allows is admitted; once the
rate was raised, what was admitted before counts at the new rate, and what waits notices it within
`RECHECK_S`.

Source: protocol rules 9.3, 11.2.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from metadata.ids import BookieId, EntryId, LedgerId

RECHECK_S: Final = 1.0
"""Longest time, in seconds, for which a request that waits does not look at the limits."""


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """Limits of one copy. It uses up to `2 * request_bytes_max * (requests_at_once + 1)` bytes of
    memory.
    """

    request_bytes_max: int = 1024 * 1024
    """Approximate size of one request; a batch of the source always comes complete."""
    requests_at_once: int = 4

    def __post_init__(self) -> None:
        if self.request_bytes_max < 1 or self.requests_at_once < 1:
            raise ValueError("request_bytes_max and requests_at_once must be at least 1")


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """Progress of one copy; only entries read back from the target count.

    It starts again from zero in the rare case that everything must be copied again.
    """

    ledger_id: LedgerId
    fragment_first_entry_id: EntryId
    target: BookieId
    copied_entries: int
    total_entries: int
    copied_bytes: int
    """Payload bytes."""


OnProgress = Callable[[CopyProgress], None]
"""Called with the progress of a copy, after each piece."""


class Throttle(Protocol):
    """Spaces the requests of copies."""

    def take(self, size: int, now: float, source: BookieId | None) -> float:
        """Count `size` bytes that the bookie `source` returned; return the seconds to wait before
        they are used.
        """

    def left_s(self, now: float) -> float:
        """Return the seconds until all that was counted has passed, by the present limits."""


async def wait_for_turn(throttle: Throttle, size: int, source: BookieId | None) -> None:
    """Count `size` bytes that the bookie `source` returned, and wait until they may be used."""
    loop = asyncio.get_running_loop()
    wait_s = throttle.take(size, loop.time(), source)
    while wait_s > RECHECK_S:
        await asyncio.sleep(RECHECK_S)
        wait_s = min(wait_s - RECHECK_S, throttle.left_s(loop.time()))
    await asyncio.sleep(wait_s)


class CopyThrottle:
    """Spaces the requests of all copies of a client so that they stay below a rate."""

    def __init__(self, bytes_per_s: float | None) -> None:
        """Create a throttle. `bytes_per_s` is the maximum rate of bytes stored on targets; each is
        also read twice, from its source and back from its target. None for no limit.
        """
        self._bytes_per_s = bytes_per_s
        self._counted_at = float("inf")
        """Rate at which `_free_at` was computed."""
        self._free_at = float("-inf")

    def limit(self, bytes_per_s: float | None) -> None:
        """Change the rate for requests from now on."""
        self._bytes_per_s = bytes_per_s

    def take(self, size: int, now: float, source: BookieId | None = None) -> float:
        """Count `size` bytes of any source; return the seconds to wait before they are used."""
        if self._bytes_per_s is None:
            return 0.0
        wait_s = self.left_s(now)
        self._free_at = now + wait_s + size / self._bytes_per_s
        return wait_s

    def left_s(self, now: float) -> float:
        """Return the seconds until all that was counted has passed, at the present rate."""
        if self._bytes_per_s is None:
            return 0.0
        ahead_s = max(0.0, self._free_at - now)
        if self._counted_at < self._bytes_per_s:
            ahead_s *= self._counted_at / self._bytes_per_s
            self._free_at = now + ahead_s
        self._counted_at = self._bytes_per_s
        return ahead_s
