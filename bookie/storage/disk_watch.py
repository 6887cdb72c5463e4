"""Watch of one storage's disks: when one is full and what may still be written; and detection of a
disk that hangs, because a write, a sync or a change of names does not return.

Leaves freeing space to `bookie.storage.upkeep`, the reserve's file to `bookie.log.reserve`, and
readiness to `bookie.bookie_process`. Reads are not recorded: under load they wait long in a queue
although the disk is healthy.

Invariants: space that the reserve lacks counts as used, so a bookie is writable again only when its
reserve fits too; while the reserve is removed, recovery adds leave the floor free, which fences,
tombstones, index pages and one rewrite may use; after a refusal that the free space does not
explain, only the room of the removed reserve counts as free, and the reserve must be written again
and a trial write succeed before the bookie is writable.

Every operation that changes the disk is recorded from its call until it returns; a hang is reported
after two checks in a row, so that a process that was paused for long does not report one; while the
disk hangs, the bookie is not registered and refuses ordinary adds.
Source: docs/operating.md, "A full disk"; storage design, "Limits and refusals"; reliability design,
"A hung disk"; protocol rule 2.1.
"""

import asyncio
import itertools
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeVar, cast

from bookie.config import StorageConfig
from bookie.files.disk import (
    Buffer,
    Disk,
    DiskSpace,
    File,
    OrderedStore,
    StoreSizes,
    StoreTransaction,
)
from bookie.log.reserve import TRIAL_BYTES_MAX, DoubtfulRoom, Reserve, try_to_write
from bookie.storage.cleaning import CleaningRoom, pace_of
from bookie.storage.writability import Reason, Writability

LOG: Final = "log"
INDEX: Final = "index"
DIRECTORIES: Final = (LOG, INDEX, "identity")
"""Directories that may be on separate file systems."""
FULL: Final = (Reason.DISK_FULL, Reason.DISK_HIGH_MARK, Reason.RESERVE_MISSING)
"""The reasons that count as a full disk."""


class DiskWatch:
    """Known free space of the disks. `measure` measures it; the other methods compute with it."""

    def __init__(
        self,
        disk: Disk,
        config: StorageConfig,
        reserve: Reserve,
        writability: Writability,
        written_bytes: Callable[[], int],
        index_sizes: Callable[[], StoreSizes],
    ) -> None:
        """`written_bytes` returns how many bytes the log has written since it was opened;
        `index_sizes` returns the sizes of the index's store.
        """
        self.spaces: dict[str, DiskSpace] = dict.fromkeys(DIRECTORIES, DiskSpace(0, 0))
        """Space of each directory's file system, at the last measurement."""
        self._disk = disk
        self._config = config
        self._reserve = reserve
        self._is_refused = False
        """Whether the log's disk refused a write since the last measurement."""
        self._doubt = DoubtfulRoom()
        self._index_refuses = False
        """Whether an update of the index found no room, and none has succeeded since."""
        self._writability = writability
        self._written_bytes = written_bytes
        self._index_sizes = index_sizes
        self._written_at_measurement = 0
        self._is_measured = False
        self._released_bytes = 0
        """Size of the reserve that was removed last."""
        self._written_at_release = 0

    async def measure(self, *, is_pressed: bool) -> None:
        """Measure the disks and decide. `is_pressed`: a write just found no room. Raises
        DiskFailedError.
        """
        is_refused, self._is_refused = self._is_refused, False
        written = self._written_bytes()
        await self._reserve.measure()
        self.spaces = {name: await self._disk.space(name) for name in DIRECTORIES}
        self._written_at_measurement, self._is_measured = written, True
        used = self.used_share
        if used >= self._config.disk_high_mark:
            self._note_use()
            if is_refused and self.free_bytes >= self._config.floor_bytes + TRIAL_BYTES_MAX:
                await self._has_room(is_refused=True)  # no write is longer
        elif used < self._config.disk_low_mark and await self._has_room(is_refused=is_refused):
            for reason in FULL:
                self._writability.end(reason, where=LOG)
        for name in self.other_mounts:
            self._check_other_mount(name, is_pressed=is_pressed)
        if self.is_full and self._sure_bytes < self._config.floor_bytes:
            if not (self._doubt.is_doubtful and self._reserve.is_wanted):  # a trial writes it
                await self._release_reserve()
        elif not self.is_full:
            self._reserve.want()

    async def _release_reserve(self) -> None:
        held_bytes, written = self._reserve.held_bytes, self._written_bytes()
        await self._reserve.release()
        if held_bytes:
            self._released_bytes, self._written_at_release = held_bytes, written
        self.spaces[LOG] = await self._disk.space(LOG)
        self._written_at_measurement = self._written_bytes()

    async def _has_room(self, *, is_refused: bool) -> bool:
        """Return whether the log's disk has the room that its file system reports. `is_refused`: it
        refused a write since the last measurement.
        """
        now_s, doubt = asyncio.get_running_loop().time(), self._doubt
        if is_refused or (doubt.is_doubtful and self._reserve.found_no_room):
            self._note_doubt(doubt.note_refusal(now_s))
        elif doubt.may_try(now_s):
            if self.missing_bytes:
                self._reserve.want()  # the trial comes after it: a bookie needs room for both
            elif await try_to_write(self._disk, self._config.segment_bytes_max):
                doubt.note_proof(now_s)
            else:
                self._note_doubt(doubt.note_refusal(now_s))
        return not doubt.is_doubtful

    def _note_doubt(self, wait_s: float) -> None:
        """Say when the next trial is, and let the reserve be removed."""
        self._reserve.give_up()
        text = (
            f"the disk of {LOG}/ refused a write, and its file system reports "
            f"{self.space.free_bytes} free bytes: a quota, no free inodes, or a thin volume that "
            f"is full. The next trial write is in {wait_s:.0f} s"
        )
        self._writability.begin(Reason.DISK_FULL, text, where=LOG)

    def note_full(self, what: str) -> None:
        """Treat a disk as full from now on, because a write to the index or to the log found no
        room.
        """
        where = LOG
        if what.rpartition("/")[2] == INDEX and INDEX in self.other_mounts:
            where, self._index_refuses = INDEX, True
        else:
            self._is_refused = True
        text = f"the disk of {where}/ refused a write: no space left"
        self._writability.begin(Reason.DISK_FULL, text, where=where)

    def note_index_stored(self) -> None:
        """Record that an update of the index succeeded."""
        self._index_refuses = False

    def _note_use(self) -> None:
        """Treat the log's disk as full from now on, because of its used share."""
        config, space, missing = self._config, self.space, self.missing_bytes
        text = describe_use(LOG, space, config)
        is_raw_use = 1.0 - space.free_bytes / max(1, space.total_bytes) >= config.disk_high_mark
        if is_raw_use or self.is_full:
            self._writability.begin(Reason.DISK_HIGH_MARK, text, where=LOG)
        else:
            text = f"{text}, which leaves no room for the reserve of {missing} bytes"
            self._writability.begin(Reason.RESERVE_MISSING, text, where=LOG)

    def _check_other_mount(self, name: str, *, is_pressed: bool) -> None:
        """Decide whether a mount other than the log's is full, by the disk marks."""
        space = self.spaces[name]
        free_bytes = space.free_bytes + self._reusable_bytes(name)
        used = 1.0 - free_bytes / max(1, space.total_bytes)
        if used >= self._config.disk_high_mark:
            text = describe_use(name, space, self._config)
            self._writability.begin(Reason.DISK_HIGH_MARK, text, where=name)
        elif used < self._config.disk_low_mark:
            self._writability.end(Reason.DISK_HIGH_MARK, where=name)
            if not is_pressed and not self._index_refuses:
                self._writability.end(Reason.DISK_FULL, where=name)

    def _reusable_bytes(self, name: str) -> int:
        """Return the bytes of the index's file that the index may reuse; 0 for other
        directories.
        """
        return self._index_sizes().reusable_bytes if name == INDEX else 0

    @property
    def space(self) -> DiskSpace:
        """Space of the log's file system, at the last measurement."""
        return self.spaces[LOG]

    @property
    def other_mounts(self) -> list[str]:
        """Directories that are on other file systems than the log."""
        device = self.space.device
        return [name for name in DIRECTORIES if self.spaces[name].device != device]

    @property
    def is_full(self) -> bool:
        """Whether ordinary adds are refused because a disk is full."""
        return any(self._writability.has(reason) for reason in FULL)

    @property
    def free_bytes(self) -> int:
        """Free bytes for the log: the last measurement minus the bytes written since."""
        return self.space.free_bytes - (self._written_bytes() - self._written_at_measurement)

    @property
    def _sure_bytes(self) -> int:
        """Free bytes on which a write of the log can rely.

        While the measured free space is in doubt, these are at most the bytes of the removed
        reserve, minus the bytes written since.
        """
        if not self._doubt.is_doubtful:
            return self.free_bytes
        written = self._written_bytes() - self._written_at_release
        return min(self.free_bytes, self._released_bytes - written)

    @property
    def missing_bytes(self) -> int:
        """Bytes missing from the reserve."""
        wanted = self._config.reserve_bytes(self.space.total_bytes)
        return max(0, wanted - self._reserve.held_bytes)

    @property
    def used_share(self) -> float:
        """Share of the disk in use, including the bytes missing from the reserve."""
        return 1.0 - (self.free_bytes - self.missing_bytes) / max(1, self.space.total_bytes)

    @property
    def takes_recovery_adds(self) -> bool:
        """Whether recovery adds are accepted: enough room stays for fences, tombstones and
        cleaning.
        """
        if not self.is_full or self._reserve.held_bytes or not self._is_measured:
            return True
        return self._sure_bytes >= self._config.floor_bytes

    def room(self, backlog_bytes: int) -> CleaningRoom:
        """Return the space and the pace of a pass of cleaning."""
        config = self._config
        if self.is_full:
            free_bytes = self._sure_bytes - config.reserve_bytes_min
        else:  # a rewrite must not raise the disk above its high mark
            share = max(0.0, config.disk_high_mark - self.used_share)
            free_bytes = int(share * self.space.total_bytes)
        pace = pace_of(backlog_bytes, self.used_share, config, is_full=self.is_full)
        index_bytes: int | None = None
        if INDEX in self.other_mounts:
            index_bytes = self.spaces[INDEX].free_bytes + self._reusable_bytes(INDEX)
        return CleaningRoom(free_bytes, self.is_full, pace, index_bytes)


def describe_use(name: str, space: DiskSpace, config: StorageConfig) -> str:
    """Return a sentence that says how full the disk of a directory is, and when it is no longer."""
    used = 1.0 - space.free_bytes / max(1, space.total_bytes)
    return (
        f"the disk of {name}/ is {used:.1%} full, the high mark is "
        f"{config.disk_high_mark:.1%}: {space.free_bytes} of {space.total_bytes} bytes are free; "
        f"new entries are accepted again below the low mark, {config.disk_low_mark:.1%}"
    )


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
