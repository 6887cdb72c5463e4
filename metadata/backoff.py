"""Pauses between repeated calls to the metadata service, and reads that are repeated until it
answers. Writes are repeated by `metadata.store.value_changes`.

Invariants: pauses grow up to a limit and are jittered, so that clients of a service that comes back
do not all call it at the same time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar

from metadata.errors import StoreUnavailableError

Result = TypeVar("Result")

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


async def until_answered(rng: Random, read: Callable[[], Awaitable[Result]]) -> Result:
    """Repeat a read while the store is not available, until it answers or the call is cancelled:
    the next session begins within the limit of most callers. Raises what else `read` raises.
    """
    backoff = Backoff(rng)
    while True:
        try:
            return await read()
        except StoreUnavailableError:
            await asyncio.sleep(backoff.next_s())
