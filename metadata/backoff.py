"""Pauses between repeated calls to the metadata service.

Leaves the waiting, and the decision to stop, to the caller.

Invariants: pauses grow up to a limit and are jittered, so that clients of a service that comes back
do not all call it at the same time.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

PAUSE_FIRST_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0


@dataclass(slots=True)
class Backoff:
    """Pauses of one repeated call: they double from `first_s` to `max_s`; half of each pause is
    random.
    """

    rng: Random
    first_s: float = PAUSE_FIRST_S
    max_s: float = PAUSE_MAX_S
    count: int = 0

    def next_s(self) -> float:
        """Return the next pause, in seconds."""
        bound = min(self.max_s, self.first_s * (1 << min(self.count, 30)))
        self.count += 1
        return bound * (0.5 + self.rng.random() / 2)
