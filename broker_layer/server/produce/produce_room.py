"""Pauses of connections whose partitions have no room.

Leaves the decision whether there is room to the logs.

Invariant: a connection and a log have at most one wait; it also ends when the log ends.
"""

import asyncio

from broker_layer.server.exchange import Requester
from broker_layer.server.ports import PartitionLog
from metadata.cancelling import cancel_and_wait


class ProduceRoom:
    """The connections that wait for room; belongs to one event loop."""

    def __init__(self) -> None:
        self._waits: dict[tuple[int, int], asyncio.Task[None]] = {}

    def wait(self, requester: Requester, log: PartitionLog) -> None:
        """Stop reading from a connection until a log has room."""
        key = (requester.connection_id, id(log))  # the task's reference keeps this id unique
        if key not in self._waits:
            requester.hold_reading(held=True)
            task = asyncio.get_running_loop().create_task(self._wait(key, requester, log))
            self._waits[key] = task

    async def close(self) -> None:
        """Cancel every wait."""
        await cancel_and_wait(*self._waits.values())

    async def _wait(self, key: tuple[int, int], requester: Requester, log: PartitionLog) -> None:
        try:
            await log.wait_for_room(0)
        finally:
            del self._waits[key]
            requester.hold_reading(held=False)
