"""Batches of compare-and-set requests, so that a dead bookie does not cost one round trip per
ledger.

Leaves deciding unknown outcomes to `ledger_store.py`, which reads back each write.

Invariants: a request is sent alone and at once if a send is free, and requests wait only while none
is; a batch holds at most MULTI_OPERATIONS_MAX requests and MULTI_BYTES_MAX bytes, and each path
once; each request receives its own outcome; if one request of a batch fails, the requests are
repeated one by one.

Source: metadata design, "Storms".
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from metadata.errors import (
    NodeNotFoundError,
    StoreRefusedError,
    StoreUnavailableError,
    VersionConflictError,
)
from metadata.ids import Version
from metadata.store.interface import (
    MULTI_BYTES_MAX,
    MULTI_OPERATIONS_MAX,
    CompareAndSet,
    MetadataStore,
    check_value,
    multi_size,
)

BATCHES_IN_FLIGHT_MAX: Final = 4
WAITING_WRITES_MAX: Final = 100_000


@dataclass(slots=True)
class _Waiting:
    operation: CompareAndSet
    reply: "asyncio.Future[Version]"


def plan_batch(operations: Iterable[CompareAndSet]) -> int:
    """Return how many of the first operations fit into one multi; at least 1."""
    count = 0
    size = 0
    paths: dict[str, None] = {}
    for operation in operations:
        size += multi_size([operation])
        full = count == MULTI_OPERATIONS_MAX or size > MULTI_BYTES_MAX or operation.path in paths
        if count > 0 and full:
            break
        paths[operation.path] = None
        count += 1
    return count


class BatchingStore:
    """Compare-and-set over a `MetadataStore`, batched when requests arrive faster than answers."""

    def __init__(self, store: MetadataStore) -> None:
        self._store = store
        self._waiting: deque[_Waiting] = deque()
        self._in_flight = 0
        self._tasks: dict[asyncio.Task[None], None] = {}

    async def compare_and_set(self, path: str, value: bytes, expected: Version) -> Version:
        """Write if the version matches (see `MetadataStore.compare_and_set`)."""
        check_value(path, value)
        if self._in_flight < BATCHES_IN_FLIGHT_MAX:
            return await self._send_alone(path, value, expected)
        if len(self._waiting) >= WAITING_WRITES_MAX:
            raise StoreUnavailableError(
                self._store.address, f"{WAITING_WRITES_MAX} writes wait for it, which is the limit"
            )
        reply: asyncio.Future[Version] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Waiting(CompareAndSet(path, value, expected), reply))
        return await reply

    async def _send_alone(self, path: str, value: bytes, expected: Version) -> Version:
        self._in_flight += 1
        try:
            return await self._store.compare_and_set(path, value, expected)
        finally:
            self._in_flight -= 1
            self._send_waiting()

    def _send_waiting(self) -> None:
        while self._waiting and self._in_flight < BATCHES_IN_FLIGHT_MAX:
            count = plan_batch(waiting.operation for waiting in self._waiting)
            batch = [self._waiting.popleft() for _ in range(count)]
            batch = [waiting for waiting in batch if not waiting.reply.done()]
            if batch:
                self._in_flight += 1
                task = asyncio.get_running_loop().create_task(self._send(batch))
                self._tasks[task] = None
                task.add_done_callback(self._tasks.pop)

    async def _send(self, batch: list[_Waiting]) -> None:
        try:
            if len(batch) == 1 or not await self._send_together(batch):
                await asyncio.gather(*[self._send_one(waiting) for waiting in batch])
        finally:
            for waiting in batch:
                waiting.reply.cancel()  # only if this task was cancelled with the loop
            self._in_flight -= 1
            self._send_waiting()

    async def _send_together(self, batch: list[_Waiting]) -> bool:
        """Send one multi. Returns True if every request has its outcome now, False if none was
        applied.
        """
        try:
            versions = await self._store.multi([waiting.operation for waiting in batch])
        except (VersionConflictError, NodeNotFoundError, StoreRefusedError):
            return False  # one of them failed, and the others must not fail with it
        except Exception as error:  # noqa: BLE001 - each caller gets it
            for waiting in batch:
                if not waiting.reply.done():
                    waiting.reply.set_exception(error)
            return True
        for waiting, version in zip(batch, versions, strict=True):
            if not waiting.reply.done():
                waiting.reply.set_result(version)
        return True

    async def _send_one(self, waiting: _Waiting) -> None:
        operation = waiting.operation
        try:
            version = await self._store.compare_and_set(
                operation.path, operation.value, operation.expected
            )
        except Exception as error:  # noqa: BLE001 - the caller gets it
            if not waiting.reply.done():
                waiting.reply.set_exception(error)
        else:
            if not waiting.reply.done():
                waiting.reply.set_result(version)
