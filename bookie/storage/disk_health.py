"""Record of a disk's running writes, syncs and changes of names, and detection of a disk that
hangs: one of them does not return.

Leaves readiness to `bookie.bookie_process`, and log lines and metrics to the listeners of
`bookie.storage.writability`. Reads are not recorded: under load they wait long in a queue although
the disk is healthy.

Invariants: every operation that changes the disk is recorded from its call until it returns; a hang
is reported after two checks in a row, so that a process that was paused for long does not report
one; while the disk hangs, the bookie is not registered and refuses ordinary adds.
Source: reliability design, "A hung disk"; protocol rule 2.1.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast

from bookie.files.disk import Buffer, Disk, File, OrderedStore, StoreTransaction
from bookie.storage.writability import Reason, Writability

CHECK_INTERVAL_S_MAX: Final = 1.0
GUARD_GRACE_S: Final = 5.0
"""The guard acts after two of its checks, this far apart, found that the event loop did not check
for this long, in seconds.
"""
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


class RemovableRegistration(Protocol):
    """A registration that can be removed and added again."""

    def withdraw(self) -> None:
        """Remove the registration until `restore`."""

    def restore(self) -> None:
        """Add the registration again."""


class DiskHealth:
    """Periodic check of the oldest running operation, from `start` to `stop`."""

    def __init__(
        self,
        under_way: RunningOperations,
        hung_s: float,
        writability: Writability,
        registration: RemovableRegistration,
    ) -> None:
        self.checked_s = 0.0
        """Time of the last check, by the loop's clock."""
        self.hung: str | None = None
        """Description of the hang for operators; None when the disk does not hang."""
        self._under_way = under_way
        self._hung_s = hung_s
        self._writability = writability
        self._registration = registration
        self._suspect: int | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the periodic checks on the running loop."""
        loop = asyncio.get_running_loop()
        self.checked_s = loop.time()
        interval_s = min(CHECK_INTERVAL_S_MAX, self._hung_s / 4)
        self._timer = loop.call_later(interval_s, self._check_and_repeat)

    def stop(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()

    def _check_and_repeat(self) -> None:
        self.start()
        oldest = self._under_way.oldest()
        if oldest is None or self.checked_s - oldest.began_s < self._hung_s:
            self._suspect = None
            self._note_answer()
        elif oldest.number == self._suspect:
            self._note_hang(oldest)
        else:
            self._suspect = oldest.number

    def _note_hang(self, oldest: RunningOperation) -> None:
        seconds = self.checked_s - oldest.began_s
        is_new = self.hung is None
        self.hung = f"the disk hangs: {oldest.what} has not returned for {seconds:.0f} s"
        if is_new:
            self._writability.begin(Reason.DISK_HUNG, self.hung)
            self._registration.withdraw()

    def _note_answer(self) -> None:
        if self.hung is not None:
            self.hung = None
            self._writability.end(Reason.DISK_HUNG)
            self._registration.restore()


class HangGuard:
    """Thread that acts when the event loop itself hangs in a small write (decision 0008) and
    therefore cannot act.
    """

    def __init__(
        self,
        under_way: RunningOperations,
        checked_s: Callable[[], float],
        hung_s: float,
        on_hang: Callable[[str], None],
        grace_s: float = GUARD_GRACE_S,
    ) -> None:
        """Start the thread. `checked_s` returns the time of the loop's last check. The thread calls
        `on_hang` once, with the reason.
        """
        self._under_way = under_way
        self._checked_s = checked_s
        self._hung_s = hung_s
        self._on_hang = on_hang
        self._grace_s = grace_s
        self._stopping = threading.Event()
        threading.Thread(target=self._watch, name="hang-guard", daemon=True).start()

    def stop(self) -> None:
        """Stop the thread."""
        self._stopping.set()

    def _watch(self) -> None:
        suspect: int | None = None
        while not self._stopping.wait(self._grace_s):
            oldest = self._under_way.oldest()
            now_s = time.monotonic()
            if (
                oldest is None
                or now_s - oldest.began_s < self._hung_s
                or now_s - self._checked_s() < self._grace_s
            ):
                suspect = None
            elif oldest.number == suspect:
                self._on_hang(f"{oldest.what} has held the event loop for {self._hung_s:.0f} s")
                return
            else:
                suspect = oldest.number
