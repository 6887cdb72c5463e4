"""Tells how many bookies are up, and under which numbers clients see them as replicas.

Leaves who is up to `metadata.registry.directory`, and the numbers to
`metadata.topics.replica_numbers`.

Invariant: a number is shown only of a bookie that is up.
"""

import asyncio
import logging
from typing import TYPE_CHECKING

from metadata.errors import MetadataError
from metadata.registry.directory import BookieDirectory, DirectoryEvent
from metadata.topics.replica_numbers import ReplicaNumbers

if TYPE_CHECKING:
    from metadata.store.interface import Cancel

_log = logging.getLogger("quire.broker.partitions")


class LiveBookies:
    """The bookies of a directory that somebody else started, from `start` until `aclose`."""

    def __init__(self, directory: BookieDirectory, numbers: ReplicaNumbers) -> None:
        self._directory = directory
        self._numbers = numbers
        self._wake = asyncio.Event()
        self._cancel: Cancel | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to learn the numbers of bookies."""
        self._cancel = self._directory.on_event(self._on_event)
        self._wake.set()
        self._task = asyncio.get_running_loop().create_task(self._learn())

    async def aclose(self) -> None:
        """End that."""
        if self._cancel is not None:
            self._cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def count(self) -> int:
        """Return how many are up."""
        return len(self._directory.bookies)

    def numbers(self) -> list[int]:
        """Return the numbers, as far as they are known, in ascending order."""
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
                _log.debug("the numbers of bookies are not known yet: %s", error)
                self._wake.set()
                await asyncio.sleep(1.0)
