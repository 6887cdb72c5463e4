"""Decision whether repair goes on after the loss of a bookie. Pure.

Leaves reading what is left to `commands`, and the losses to `losses`.

Source: protocol rule 9.3.
"""

from dataclasses import dataclass
from typing import Final

PROGRESS_S_MAX: Final = 120.0
"""Maximum time in which neither ledgers nor bytes that are left become fewer, in seconds."""
RESTORED_S_MAX: Final = 300.0
"""Maximum time until nothing is left, also if something is blocked or added, in seconds."""


@dataclass(frozen=True, slots=True)
class Left:
    """What is left to repair, as the auditor last wrote it."""

    is_noticed: bool
    """Whether the lost bookie counts as lost, or the draining one as drained."""
    ledgers: int
    bytes_left: int
    blocked: int
    """Ledgers that are blocked, with a reason."""

    @property
    def is_nothing(self) -> bool:
        """Whether all copies are restored."""
        return self.is_noticed and not self.ledgers

    @property
    def is_all_blocked(self) -> bool:
        """Whether no ledger can be repaired now."""
        return 0 < self.ledgers <= self.blocked


class Restoration:
    """One time of repair, from the loss until nothing is left."""

    def __init__(self, now_s: float) -> None:
        self.most = Left(is_noticed=False, ledgers=0, bytes_left=0, blocked=0)
        """The most that was seen to be left."""
        self._began_s = now_s
        self._progress_s = now_s
        self._last: Left | None = None

    def see(self, left: Left, now_s: float) -> str:
        """Take what is left now; return a complaint, or an empty text."""
        if self._last is None or left.is_all_blocked or _is_less(left, self._last):
            self._progress_s = now_s
        self._last = left
        if (left.ledgers, left.bytes_left) > (self.most.ledgers, self.most.bytes_left):
            self.most = left
        return self.late(now_s)

    def late(self, now_s: float) -> str:
        """Return a complaint if too much time has passed, or an empty text."""
        if now_s - self._began_s > RESTORED_S_MAX:
            return f"not all copies were restored within {RESTORED_S_MAX:.0f} s: {self._last}"
        if now_s - self._progress_s > PROGRESS_S_MAX:
            return f"no progress of repair for {PROGRESS_S_MAX:.0f} s: {self._last}"
        return ""


def _is_less(left: Left, before: Left) -> bool:
    is_fewer = left.ledgers < before.ledgers or left.bytes_left < before.bytes_left
    return is_fewer or (left.is_noticed and not before.is_noticed)
