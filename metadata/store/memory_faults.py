"""Says where a test or a simulator may interfere with the metadata store in memory.

Leaves deciding when and how to its implementations, and the service itself to `memory.py`.

Invariants: a fault delays, refuses or loses; it never changes what an applied operation means.

Source: protocol rule 1.3.
"""

import asyncio
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class StoreCall:
    """One request, as the faults see it."""

    session_id: int
    operation: str
    path: str
    is_write: bool


class StoreFaults(Protocol):
    """Decides what goes wrong; a simulator implements it, `NoFaults` is the absence of any."""

    async def before(self, call: StoreCall) -> None:
        """Run after a request left and before it takes effect: delay it, or refuse it by raising
        StoreUnavailableError.
        """
        ...

    async def after(self, call: StoreCall) -> None:
        """Run after a request took effect and before its caller knows: delay the answer, or lose
        it by raising OutcomeUnknownError.
        """
        ...

    def missed_changes(self, call: StoreCall) -> int:
        """Return how many of the newest changes a read that is not fresh does not see yet."""
        ...

    def watch_delay_s(self, path: str) -> float:
        """Return how long the news of a change is under way."""
        ...


class NoFaults:
    """A service that answers at the next turn of the loop; to be built upon."""

    async def before(self, call: StoreCall) -> None:
        """Let others run, as a network does."""
        await asyncio.sleep(0)

    async def after(self, call: StoreCall) -> None:
        """Let others run, as a network does."""
        await asyncio.sleep(0)

    def missed_changes(self, call: StoreCall) -> int:
        """See everything."""
        return 0

    def watch_delay_s(self, path: str) -> float:
        """Tell at once."""
        return 0.0
