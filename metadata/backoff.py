"""Decides how long to wait before a call to the metadata service is repeated.

Leaves the waiting and the giving up to the caller.

Invariants: pauses grow to a bound and are jittered, so that clients of a returning service do not
arrive together.
"""

from dataclasses import dataclass
from random import Random
from typing import Final

PAUSE_FIRST_S: Final = 0.05
PAUSE_MAX_S: Final = 1.0


@dataclass(slots=True)
class Pauses:
    """The pauses of one call that is repeated: doubling from `first_s` to `max_s`, each half
    jitter.
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
