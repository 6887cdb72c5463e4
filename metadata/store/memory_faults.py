"""Points at which a test or a simulator can inject faults into the in-memory metadata store.

Leaves the choice of faults to the implementations, and the service itself to `memory.py`.

Invariants: a fault delays or refuses a request or loses its answer; it never changes the effect of
an applied operation.

Source: protocol rule 1.3.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One request, as seen by the faults."""

    session_id: int
    operation: str
    path: str
    is_write: bool
    is_fresh: bool = False
    """Whether it is a read that waits until the server has caught up with its leader."""
    is_agreed: bool = False
    """Whether it is a read that waits until a quorum has committed a write without effect."""


class StoreFaults(Protocol):
    """Source of faults. A simulator implements it; `NoFaults` injects none."""

    async def before(self, call: StoreCall) -> None:
        """Run after a request was sent and before it takes effect: delay it, or refuse it by
        raising StoreUnavailableError.
        """

    async def after(self, call: StoreCall) -> None:
        """Run after a request took effect and before its caller receives the answer: delay the
        answer, or lose it by raising OutcomeUnknownError.
        """

    def missed_changes(self, call: StoreCall) -> int:
        """Return how many of the newest changes a read misses: a fresh one misses some only if a
        leader answers that was replaced and does not know it yet. Agreed reads miss none.
        """

    def watch_delay_s(self, path: str) -> float:
        """Return the delay of a change notification, in seconds."""


class NoFaults:
    """Service that answers in the next iteration of the event loop; a base for other faults."""

    async def before(self, call: StoreCall) -> None:
        """Yield to other tasks, as a network call does."""
        await asyncio.sleep(0)

    async def after(self, call: StoreCall) -> None:
        """Yield to other tasks, as a network call does."""
        await asyncio.sleep(0)

    def missed_changes(self, call: StoreCall) -> int:
        """Return 0: reads see every change."""
        return 0

    def watch_delay_s(self, path: str) -> float:
        """Return 0: changes are reported at once."""
        return 0.0
