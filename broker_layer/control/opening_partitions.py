"""Knows which partitions this broker is taking over, for whoever would rather wait than be refused.

Leaves taking them over to `held_partition`.

Invariant: a partition is in here only while an attempt is under way, or about to be; one that has
failed, and waits, is not.
"""

import asyncio


class OpeningPartitions:
    """The partitions that are about to be led."""

    def __init__(self) -> None:
        self._opening: dict[tuple[str, int], asyncio.Event] = {}

    def begin(self, topic: str, partition: int) -> None:
        """Note that an attempt begins."""
        self._opening.setdefault((topic, partition), asyncio.Event())

    def end(self, topic: str, partition: int) -> None:
        """Note how it ended, whichever way, and wake who waits."""
        event = self._opening.pop((topic, partition), None)
        if event is not None:
            event.set()

    def find(self, topic: str, partition: int) -> asyncio.Event | None:
        """Return what is set at the end of the attempt, None if there is none."""
        return self._opening.get((topic, partition)) if self._opening else None
