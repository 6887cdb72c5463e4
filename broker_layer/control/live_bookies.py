"""Count of the live bookies, and the numbers under which clients see them as replicas.

Leaves the list of live bookies to `metadata.registry.directory`, and assigning numbers to
`metadata.topics.replica_numbers`.

Invariant: only numbers of live bookies are shown.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from ledger_client.tasks import BackgroundTasks
from metadata.errors import MetadataError
from metadata.registry.directory import BookieDirectory, DirectoryEvent
from metadata.topics.replica_numbers import ReplicaNumbers

if TYPE_CHECKING:
    from metadata.store.interface import Cancel

_log = logging.getLogger("quire.broker.partitions")


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
        known = (self._numbers.known_number(each) for each in self._directory.bookies)
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
