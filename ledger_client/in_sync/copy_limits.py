"""Says how much of a client and its bookies copying may take, and how far a copy has come.

Leaves copying to `copying.py`, which tells the time.

Invariant: over any time, at most one request more is let through than the rate allows.

Source: protocol rules 9.3, 11.2.
"""

from dataclasses import dataclass

from metadata.ids import BookieId, EntryId, LedgerId


@dataclass(frozen=True, slots=True)
class CopyLimits:
    """What one copy may take; of memory `2 * request_bytes_max * (requests_at_once + 1)`."""

    bytes_per_s: float | None = 32 * 1024 * 1024
    """Bytes stored on targets; each is also read twice, from its source and back from its target.
    None: as fast as they go."""
    request_bytes_max: int = 1024 * 1024
    """About what one request holds; one of the source's batches always comes whole."""
    requests_at_once: int = 4

    def __post_init__(self) -> None:
        if self.bytes_per_s is not None and self.bytes_per_s <= 0:
            raise ValueError(f"bytes_per_s must be positive or None, got {self.bytes_per_s}")
        if self.request_bytes_max < 1 or self.requests_at_once < 1:
            raise ValueError("request_bytes_max and requests_at_once must be at least 1")


@dataclass(frozen=True, slots=True)
class CopyProgress:
    """How far one copy has come: what is counted was read back from the target.

    It starts again from nothing in the rare case that all must be copied again.
    """

    ledger_id: LedgerId
    fragment_first_entry_id: EntryId
    target: BookieId
    copied_entries: int
    total_entries: int
    copied_bytes: int
    """Of payload."""


class CopyThrottle:
    """Spaces requests so that they take no more than so many bytes a second."""

    def __init__(self, bytes_per_s: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._free_at = float("-inf")

    def take(self, size: int, now: float) -> float:
        """Take so many bytes; return the seconds to wait before they are used."""
        if self._bytes_per_s is None:
            return 0.0
        start = max(now, self._free_at)
        self._free_at = start + size / self._bytes_per_s
        return start - now
