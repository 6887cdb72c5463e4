"""Interface of a metadata service under test, and helpers to wait for its events.

Leaves its creation to each implementation, and its contract to `metadata_store.py`.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from metadata.store.interface import MetadataStore
from tests.until import WAIT_S


class StoreService(Protocol):
    """One metadata service, initially empty."""

    async def connect(self) -> MetadataStore:
        """Open another store, with a separate session."""
        ...

    async def interrupt(self, store: MetadataStore) -> None:
        """Break a store's connection for less than its session timeout."""
        ...

    async def expire(self, store: MetadataStore) -> None:
        """End a store's session."""
        ...


class Signal:
    """Counter of calls; a test can wait for the next call."""

    def __init__(self) -> None:
        self.count = 0
        self._called = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._called.set()

    async def wait(self) -> None:
        async with asyncio.timeout(WAIT_S):
            await self._called.wait()
        self._called.clear()

    def clear(self) -> None:
        self._called.clear()


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def settle(store: MetadataStore) -> None:
    """Wait until watches are set: they do not report a write that ended before."""
    for _ in range(3):
        await store.children("/", fresh=True)
    await asyncio.sleep(0.05)
