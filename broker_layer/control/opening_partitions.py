"""Partitions that this broker is taking over now, for requests that wait for the end of that.

Leaves taking them over to `held_partition`.

Invariant: a partition is listed only while an attempt runs or is about to start, not while it waits
after a failure.
"""

import asyncio


class OpeningPartitions:
    """The partitions that this broker is about to lead."""

    def __init__(self) -> None:
        self._opening: dict[tuple[str, int], asyncio.Event] = {}

    def begin(self, topic: str, partition: int) -> None:
        """Record that an attempt begins."""
        self._opening.setdefault((topic, partition), asyncio.Event())

    def end(self, topic: str, partition: int) -> None:
        """Record that the attempt ended, with success or not, and wake its waiters."""
        event = self._opening.pop((topic, partition), None)
        if event is not None:
            event.set()

    def find(self, topic: str, partition: int) -> asyncio.Event | None:
        """Return the event that is set at the end of the attempt; None if none runs."""
        return self._opening.get((topic, partition)) if self._opening else None
