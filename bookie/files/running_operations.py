"""Record of a disk's running writes, syncs and changes of names.

Leaves the meaning of a long operation to `bookie.storage.disk_health`. Reads are not recorded:
under load they wait long in a queue although the disk is healthy.

Invariant: every operation that changes the disk is recorded from its call until it returns.
"""

import itertools
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

from bookie.files.disk import Buffer, Disk, File
from bookie.files.index_store import OrderedStore, StoreTransaction

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class RunningOperation:
    """One call that has not returned."""

    number: int
    what: str
    began_s: float


class RunningOperations:
    """The running operations. Any thread may call `oldest`."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._numbers = itertools.count(1)
        self._operations: dict[int, tuple[str, float]] = {}

    def begin(self, what: str) -> int:
        """Record an operation; return its number, for `end`."""
        number = next(self._numbers)
        self._operations[number] = (what, self._now())
        return number

    def end(self, number: int) -> None:
        """Remove an operation that returned."""
        del self._operations[number]

    async def run(self, what: str, call: Coroutine[Any, Any, Result]) -> Result:
        """Await a call, and record it while it runs."""
        number = self.begin(what)
        try:
            return await call
        finally:
            self.end(number)

    def oldest(self) -> RunningOperation | None:
        """Return the running operation that began first; None when none is running."""
        try:
            number, (what, began_s) = next(iter(self._operations.items()))
        except (StopIteration, RuntimeError):
            return None  # none, or the event loop changed the record during the call
        return RunningOperation(number, what, began_s)


def watched(disk: Disk, under_way: RunningOperations) -> Disk:
    """Return the same disk, with its running operations recorded."""
    return cast("Disk", _WatchedDisk(disk, under_way))


class _WatchedDisk:
    def __init__(self, disk: Disk, under_way: RunningOperations) -> None:
        self._disk = disk
        self._under_way = under_way

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    async def create(self, name: str, **options: Any) -> File:
        call = self._disk.create(name, **options)
        return self._file(await self._under_way.run(f"the creation of {name}", call))

    async def open(self, name: str) -> File:
        return self._file(await self._disk.open(name))

    async def rename(self, old: str, new: str) -> None:
        await self._under_way.run(f"the renaming of {old}", self._disk.rename(old, new))

    async def unlink(self, name: str) -> None:
        await self._under_way.run(f"the removal of {name}", self._disk.unlink(name))

    async def sync_directory(self, directory: str) -> None:
        call = self._disk.sync_directory(directory)
        await self._under_way.run(f"the sync of {directory}", call)

    async def open_index(self, name: str, map_bytes: int) -> OrderedStore:
        store = await self._disk.open_index(name, map_bytes)
        return cast("OrderedStore", _WatchedStore(store, self._under_way))

    def _file(self, file: File) -> File:
        return cast("File", _WatchedFile(file, self._under_way))


class _WatchedFile:
    def __init__(self, file: File, under_way: RunningOperations) -> None:
        self._file = file
        self._under_way = under_way
        self._what = f"a write to {file.name}"
        # Called for each group and each read; other attributes go through __getattr__.
        self.read, self.read_nowait = file.read, file.read_nowait
        self._commit, self.drop_cached = file.commit, file.drop_cached

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    async def commit(self, offset: int, buffers: Sequence[Buffer]) -> None:
        number = self._under_way.begin(self._what)
        try:
            await self._commit(offset, buffers)
        finally:
            self._under_way.end(number)

    async def truncate(self, size: int) -> None:
        await self._under_way.run(self._what, self._file.truncate(size))


class _WatchedStore:
    def __init__(self, store: OrderedStore, under_way: RunningOperations) -> None:
        self._store = store
        self._under_way = under_way

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    async def update(
        self, job: Callable[[StoreTransaction], Result], *, keeps_room: bool = False
    ) -> Result:
        updating = self._store.update(job, keeps_room=keeps_room)
        return await self._under_way.run("a commit of the index", updating)
