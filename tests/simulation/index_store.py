"""Ordered key-value store in memory that may lose unsynced commits in a crash.

Leaves the meaning of keys and values to `bookie.index.index_pages`.

Invariants: a returned `update` survives every crash, and makes all earlier updates durable. An
update in progress is applied completely or not at all; the next process may see it before it is
durable. After a failed commit there are no more commits. A view never sees an update in progress.
Source: storage design, "Threads"; reliability design, D5, D20.
"""

import asyncio
import bisect
import random
from collections.abc import Awaitable, Callable, Coroutine
from typing import TypeVar

from bookie.errors import DiskFailedError, DiskFullError
from bookie.files.disk import StoreSizes, StoreTransaction

Result = TypeVar("Result")


async def _go_on() -> None:
    """Hold no update."""


class MemoryTransaction:
    """Changes the store in place and records how to undo it."""

    def __init__(self, store: "MemoryStore") -> None:
        self._store = store
        self.undo: list[tuple[bytes, bytes | None]] = []

    def get(self, key: bytes) -> bytes | None:
        """See `StoreTransaction.get`."""
        return self._store.pairs.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        """See `StoreTransaction.put`."""
        self._store.take_room()
        self.undo.append((key, self._store.pairs.get(key)))
        self._store.assign(key, value)

    def delete(self, key: bytes) -> None:
        """See `StoreTransaction.delete`."""
        if key in self._store.pairs:
            self.undo.append((key, self._store.pairs[key]))
            self._store.assign(key, None)

    def seek(self, key: bytes) -> tuple[bytes, bytes] | None:
        """See `StoreTransaction.seek`."""
        found = self.scan(key, 1)
        return found[0] if found else None

    def before(self, key: bytes) -> tuple[bytes, bytes] | None:
        """See `StoreTransaction.before`."""
        place = bisect.bisect_left(self._store.keys, key)
        if not place:
            return None
        found = self._store.keys[place - 1]
        return found, self._store.pairs[found]

    def scan(self, start: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """See `StoreTransaction.scan`."""
        place = bisect.bisect_left(self._store.keys, start)
        return [(key, self._store.pairs[key]) for key in self._store.keys[place : place + limit]]

    def scan_keys(self, start: bytes, limit: int) -> list[bytes]:
        """See `StoreTransaction.scan_keys`."""
        place = bisect.bisect_left(self._store.keys, start)
        return self._store.keys[place : place + limit]


class MemoryStore:
    """See `bookie.files.disk.OrderedStore`."""

    def __init__(self) -> None:
        self.keys: list[bytes] = []
        self.pairs: dict[bytes, bytes] = {}
        self.puts_left: int | None = None
        """If set, the number of puts until the store is full."""
        self._unsynced: list[tuple[bytes, bytes | None]] = []
        self._unproved: list[list[tuple[bytes, bytes | None]]] = []
        """Commits that dead processes left in the page cache: for each, what undoes it, in order.
        """
        self._failed: DiskFailedError | None = None
        self._is_closed = False
        self._pause: Callable[[], Awaitable[None]] | None = None
        self._fails: Callable[[], bool] = bool
        self._on_stored: Callable[[], object] = bool
        self._hold = _go_on
        self._lock = asyncio.Lock()
        self._viewing = asyncio.Lock()

    def attach(
        self,
        pause: Callable[[], Awaitable[None]],
        fails: Callable[[], bool],
        on_stored: Callable[[], object] = bool,
        hold: Callable[[], Coroutine[None, None, None]] = _go_on,
    ) -> None:
        """Set the delays, faults and observer of this incarnation's disk.

        `hold` is awaited before each update. The observer is called whenever the contents are
        durable: after each commit, and now unless that is uncertain.
        """
        self._pause, self._fails, self._on_stored = pause, fails, on_stored
        self._hold = hold
        self._failed, self._is_closed = None, False
        if not self._unproved:
            on_stored()
        self._lock, self._viewing = asyncio.Lock(), asyncio.Lock()

    async def view(self, job: Callable[[StoreTransaction], Result]) -> Result:
        """See `OrderedStore.view`; updates may start and end before and after the job runs."""
        self._check_open()
        async with self._viewing:
            await self._wait()
            result = self._run_on_committed(job)
            await self._wait()
            return result

    async def update(
        self, job: Callable[[StoreTransaction], Result], *, keeps_room: bool = False
    ) -> Result:
        """See `OrderedStore.update`."""
        self._check_open()
        async with self._lock:
            await self._hold()
            await self._wait()
            if self._failed is not None:
                raise self._failed
            transaction = MemoryTransaction(self)
            try:
                result = job(transaction)
            except BaseException:
                self._undo(transaction.undo)
                raise
            self._unsynced = transaction.undo
            await self._wait()
            if self._fails():
                self._failed = DiskFailedError("the simulated index", "the commit did not sync")
                raise self._failed
            self._unsynced = []
            self._unproved.clear()
            self._on_stored()
            return result

    def sizes(self) -> StoreSizes:
        """See `OrderedStore.sizes`."""
        used_bytes = sum(map(len, self.pairs.values()))
        count = self._run_on_committed(lambda _: len(self.pairs))
        return StoreSizes(used_bytes, 2**40, pair_count=count)

    def growth_bytes(self, changes: int) -> int:
        """See `OrderedStore.growth_bytes`: this store uses no space of the simulated disk."""
        return 0 * changes

    async def close(self) -> None:
        """See `OrderedStore.close`."""
        self._is_closed = True
        await self._wait()

    def _check_open(self) -> None:
        """Refuse the use of a closed store, as LMDB does."""
        if self._is_closed:
            raise DiskFailedError("the simulated index", "it was closed")

    def kill(self, rng: random.Random) -> None:
        """End only the process: a commit in progress is in the page cache, or it is lost."""
        if rng.random() < 0.5:
            self._undo(self._unsynced)
        elif self._unsynced:
            self._unproved.append(self._unsynced)
        self._unsynced = []

    def crash(self, rng: random.Random) -> None:
        """Cut the power: the commit in progress and others since the last sync may be lost."""
        self.kill(rng)
        for _ in range(rng.randint(0, len(self._unproved))):
            self._undo(self._unproved.pop())
        self._unproved.clear()

    def lose_unsynced(self) -> None:
        """Cut the power: all commits since the last synced one are lost."""
        for undo in reversed([*self._unproved, self._unsynced]):
            self._undo(undo)
        self._unsynced, self._unproved = [], []

    def copied(self) -> "MemoryStore":
        """Return a closed store with the same contents."""
        copy = MemoryStore()
        copy.keys, copy.pairs = list(self.keys), dict(self.pairs)
        copy._unsynced = list(self._unsynced)
        copy._unproved = list(self._unproved)
        return copy

    def flip_bit(self, rng: random.Random) -> bytes:
        """Change one bit of one value, as a failing medium does; return its key."""
        key = rng.choice(self.keys)
        value = bytearray(self.pairs[key])
        value[rng.randrange(len(value))] ^= 1 << rng.randrange(8)
        self.pairs[key] = bytes(value)
        return key

    def take_room(self) -> None:
        """Count a put. Raises DiskFullError if there is no space for it."""
        if self.puts_left is not None:
            if not self.puts_left:
                raise DiskFullError("the simulated index")
            self.puts_left -= 1

    def assign(self, key: bytes, value: bytes | None) -> None:
        """Set or remove a pair."""
        if value is None:
            if self.pairs.pop(key, None) is not None:
                del self.keys[bisect.bisect_left(self.keys, key)]
            return
        if key not in self.pairs:
            bisect.insort(self.keys, key)
        self.pairs[key] = value

    def _run_on_committed(self, job: Callable[[StoreTransaction], Result]) -> Result:
        """Run a job on the store without the update in progress."""
        under_way = [(key, self.pairs.get(key)) for key, _ in self._unsynced]
        self._undo(self._unsynced)
        try:
            return job(MemoryTransaction(self))
        finally:
            for key, value in under_way:
                self.assign(key, value)

    def _undo(self, undo: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in reversed(undo):
            self.assign(key, value)

    async def _wait(self) -> None:
        if self._pause is not None:
            await self._pause()
