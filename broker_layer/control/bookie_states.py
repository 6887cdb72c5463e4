"""Bookies as a broker knows them: which are up, their numbers as replicas, and whether their copies
count.

Leaves following registrations, states and cookies to the packages `metadata.registry` and
`metadata.repair`, assigning numbers to `metadata.topics.replica_numbers`, and when a bookie counts
as lost to the auditor.

Invariants: a bookie that drains has good copies. A bookie whose session ended is away at once: this
is only shown, and nothing is copied because of it. Only numbers of live bookies are shown.

Source: protocol rules 9.5, 9.6 and 9.13.
"""

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from ledger_client.tasks import BackgroundTasks
from metadata.errors import MetadataError
from metadata.ids import BookieId
from metadata.registry.directory import BookieDirectory, BookieLeft, DirectoryEvent
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.lifecycle_store import Lifecycles
from metadata.store.child_names import ChildNames
from metadata.topics.replica_numbers import ReplicaNumbers

if TYPE_CHECKING:
    from metadata.store.interface import Cancel


REMOVED: Final = "is removed"
LIMBO: Final = "is in limbo"
LOST: Final = "is lost"
AWAY: Final = "is away"
_LEAVING: Final = (Lifecycle.DRAINING, Lifecycle.LIMBO, Lifecycle.LOST)
_GONE: Final = (Lifecycle.DRAINED, Lifecycle.REMOVED)
_log = logging.getLogger("quire.broker.partitions")


class BookieStates:
    """States of all bookies, from `start` until `aclose`. The caller starts and closes the
    directory and the others.
    """

    def __init__(
        self, directory: BookieDirectory, lifecycles: Lifecycles, formatted: ChildNames
    ) -> None:
        self._directory = directory
        self._lifecycles = lifecycles
        self._formatted = formatted
        self._left: dict[BookieId, None] = {}
        """Bookies that were up and are not."""
        self._cancel: Cancel | None = None

    def start(self) -> None:
        """Begin to note the bookies that leave."""
        self._cancel = self._directory.on_event(self._on_event)

    def aclose(self) -> None:
        """Stop noting them."""
        if self._cancel is not None:
            self._cancel()

    def why_short(self, bookie_id: BookieId) -> str:
        """Return why the copies of a bookie do not count; empty if they do."""
        state = self._lifecycles.of(bookie_id).state
        if state is Lifecycle.REMOVED:
            return REMOVED
        if bookie_id not in self._directory.bookies:
            return LOST if state is Lifecycle.LOST else AWAY
        return LIMBO if state is Lifecycle.LIMBO else ""

    def is_leaving(self, bookie_id: BookieId) -> bool:
        """Return whether ledgers are moved off a bookie, or may be soon."""
        state = self._lifecycles.of(bookie_id).state
        return state in _LEAVING or state in _GONE or bookie_id not in self._directory.bookies

    @property
    def any_short(self) -> bool:
        """Whether there may be a bookie that a ledger names and whose copies do not count."""
        known = [*map(BookieId, self._formatted.names), *self._left]
        return any(
            self._lifecycles.of(id_).state not in _GONE and self.why_short(id_) for id_ in known
        )

    def _on_event(self, event: DirectoryEvent) -> None:
        if isinstance(event, BookieLeft):
            self._left[event.bookie_id] = None
        else:
            self._left.pop(event.registration.bookie_id, None)


class LiveBookies:
    """The live bookies of a directory; their numbers are read from `start` until `aclose`. The
    caller starts and closes the directory.
    """

    def __init__(self, directory: BookieDirectory, numbers: ReplicaNumbers) -> None:
        self._directory = directory
        self._numbers = numbers
        self._wake = asyncio.Event()
        self._cancel: Cancel | None = None
        self._tasks = BackgroundTasks()

    def start(self) -> None:
        """Begin to read the numbers of bookies."""
        self._cancel = self._directory.on_event(self._on_event)
        self._wake.set()
        self._tasks.start(self._learn())

    async def aclose(self) -> None:
        """Stop reading them."""
        if self._cancel is not None:
            self._cancel()
        await self._tasks.aclose()

    def count(self) -> int:
        """Return the number of bookies that are up."""
        return len(self._directory.bookies)

    def numbers(self) -> list[int]:
        """Return the known numbers in ascending order."""
        known = (self._numbers.known_number(bookie) for bookie in self._directory.bookies)
        return sorted(number for number in known if number is not None)

    def _on_event(self, event: DirectoryEvent) -> None:
        del event
        self._wake.set()

    async def _learn(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._numbers.numbers_of(list(self._directory.bookies))
            except MetadataError as error:
                _log.debug(
                    "the numbers of bookies were not read; the broker tries again: %s", error
                )
                self._wake.set()
                await asyncio.sleep(1.0)
