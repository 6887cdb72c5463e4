"""Stands for a metadata service under test, and waits for what it does.

Leaves making one to each implementation, and what it must do to `metadata_store.py`.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from metadata.store.interface import MetadataStore

WAIT_S = 20.0


class StoreService(Protocol):
    """One metadata service, empty at first."""

    async def connect(self) -> MetadataStore:
        """Open another store, with a session of its own."""
        ...

    async def interrupt(self, store: MetadataStore) -> None:
        """Break a store's connection for less than its session timeout."""
        ...

    async def expire(self, store: MetadataStore) -> None:
        """End a store's session."""
        ...


class Signal:
    """Counts calls and lets a test wait for the next one."""

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
    """Wait until something holds."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def settle(store: MetadataStore) -> None:
    """Let watches be armed: a write that ended before it would not be told."""
    for _ in range(3):
        await store.children("/", fresh=True)
    await asyncio.sleep(0.05)
