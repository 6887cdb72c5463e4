"""Disk on a real directory. One thread commits to the log, one commits to background files, one
does control work (names, creation, closing), and READ_THREADS threads serve reads that miss the
page cache. So a queue of reads does not delay a new segment, and a rewrite does not delay an add. A
small commit to a quick device runs on the calling thread: passing it to a thread and back costs
more than the sync.

Leaves the system calls to `bookie.files.disk_calls`, and the content of the files to its callers.

Invariants: see `bookie.files.disk`; the commits of one file never overlap.
Source: storage design, "Threads"; decisions 0001 and 0008.
"""

import asyncio
import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, TypeVar

from bookie.errors import (
    BookieError,
    DescriptorsExhaustedError,
    DirectoryLockedError,
    DiskFailedError,
    DiskFullError,
)
from bookie.files import disk_calls
from bookie.files.disk import Buffer, DiskSpace
from bookie.files.disk_calls import Threads
from bookie.files.index_lmdb import LmdbStore

Result = TypeVar("Result")


READ_THREADS: Final = 4
DESCRIPTOR_WAIT_S: Final = 0.5
"""Time between two tries of control work that found no free descriptor, in seconds."""
DESCRIPTOR_TRIES_MAX: Final = 40
TREE_MEASURED_S: Final = 1.0
"""The tree of a disk with a limit is measured once in this time, in seconds: one measurement
serves the spaces of all directories. Writes and removals in between are counted.
"""
LOCK_NAME: Final = "lock"
INLINE_BYTES_MAX: Final = 8 * 1024
"""Maximum size of a commit that the calling thread makes while the device is quick."""
INLINE_S_MAX: Final = 0.002
QUICK_COMMITS_MIN: Final = 16
"""A device is quick if each of its last QUICK_COMMITS_MIN small commits took at most
INLINE_S_MAX.
"""
_NOWAIT: Final[int | None] = getattr(os, "RWF_NOWAIT", None)
_NOT_NOW: Final = (errno.EAGAIN, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL)


class Capacity:
    """Limit on the bytes of one directory tree, for a bookie that may use a part of a file system.
    The index's store does not check it: its files are measured.

    Invariant: between two measurements, only bytes that other programs freed make `used_bytes` too
    large.
    """

    def __init__(self, limit_bytes: int) -> None:
        """Set the limit; 0 means no limit."""
        self.limit_bytes = limit_bytes
        self.used_bytes = 0

    def take(self, what: str, growth: int) -> None:
        """Count bytes that are about to be written. Raises DiskFullError when they do not fit."""
        if self.limit_bytes and growth > 0:
            if self.used_bytes + growth > self.limit_bytes:
                raise DiskFullError(what)
            self.used_bytes += growth

    def give(self, size: int) -> None:
        """Count bytes that were freed."""
        self.used_bytes -= size

    def bounded(self, space: DiskSpace, used_bytes: int) -> DiskSpace:
        """Set the measured bytes; return the space on the file system within the limit."""
        self.used_bytes = used_bytes
        if not self.limit_bytes:
            return space
        return DiskSpace(
            min(space.total_bytes, self.limit_bytes),
            max(0, min(space.free_bytes, self.limit_bytes - used_bytes)),
            space.device,
        )


@dataclass(eq=False, repr=False)
class RealFile:
    """A file of a `RealDisk`."""

    name: str
    _descriptor: int
    size: int
    _threads: "DiskThreads"
    _writer: Threads
    _capacity: Capacity
    _quick_count: int = field(default=0, init=False)
    _reads: list[asyncio.Future[bytes]] = field(default_factory=list, init=False)

    async def commit(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """See `File.commit`."""
        size = sum(map(len, buffers))
        self._capacity.take(self.name, offset + size - self.size)
        quick_count, self._quick_count = self._quick_count, 0
        call = (disk_calls.write_and_sync, self._descriptor, self.name, offset, buffers)
        if size > INLINE_BYTES_MAX:
            await self._writer.run(*call)
            self._quick_count = quick_count  # a large commit says nothing about small ones
        else:
            is_quick = quick_count >= QUICK_COMMITS_MIN
            seconds = call[0](*call[1:]) if is_quick else await self._writer.run(*call)
            self._quick_count = quick_count + 1 if seconds <= INLINE_S_MAX else 0
        self.size = max(self.size, offset + size)

    def read_nowait(self, offset: int, size: int) -> Buffer | None:
        """See `File.read_nowait`."""
        if _NOWAIT is None:
            return None
        buffer = bytearray(size)
        try:
            count = os.preadv(self._descriptor, [buffer], offset, _NOWAIT)
        except OSError as error:
            if error.errno in _NOT_NOW:
                return None
            raise DiskFailedError(self.name, str(error)) from error
        if count == size:
            return buffer
        return buffer[:count] if offset + count >= self.size else None

    async def read(self, offset: int, size: int) -> Buffer:
        """See `File.read`."""
        reads = self._threads.reads
        future = reads.run(disk_calls.read_all, self._descriptor, self.name, offset, size)
        self._reads.append(future)
        try:
            return await asyncio.shield(future)
        finally:
            self._reads = [read for read in self._reads if not read.done()]

    async def truncate(self, size: int) -> None:
        """See `File.truncate`."""
        await self._writer.run(self._truncate, size)
        self._capacity.give(self.size - size)
        self.size = size

    def drop_cached(self, offset: int, size: int) -> None:
        """See `File.drop_cached`."""
        if size > 0:
            # On the thread that writes next: the freed memory is warm in its processor's caches.
            dropped = self._writer.run(disk_calls.drop_cached, self._descriptor, offset, size)
            dropped.add_done_callback(_ignore)  # advice: its failure has no effect

    async def close(self) -> None:
        """See `File.close`."""
        written = self._writer.run(int)  # after a commit whose caller was cancelled
        await asyncio.gather(written, *self._reads, return_exceptions=True)
        await self._threads.control.run(os.close, self._descriptor)

    def _truncate(self, size: int) -> None:
        with disk_calls.translated(self.name):
            os.ftruncate(self._descriptor, size)
        disk_calls.sync_bytes(self._descriptor, self.name)


def _ignore(done: "asyncio.Future[None]") -> None:
    if not done.cancelled():
        done.exception()


def _close_opened(opened: tuple[int, int]) -> None:
    os.close(opened[0])


class DiskThreads:
    """Threads of a `RealDisk`, by purpose."""

    def __init__(self) -> None:
        self.log = Threads("log")
        self.background = Threads("background")
        self.control = Threads("control")
        self.reads = Threads("read", READ_THREADS)

    def close(self) -> None:
        """Stop every thread after every queued call has run."""
        for threads in (self.log, self.background, self.reads, self.control):
            threads.close()


class RealDisk:
    """Directory tree on a file system; see `bookie.files.disk.Disk`. Create it on the loop that
    uses it.
    """

    def __init__(self, root: Path, capacity_bytes: int = 0) -> None:
        """Set the directory and the maximum number of bytes below it; 0: all of the file system."""
        self._root = root
        self._capacity = Capacity(capacity_bytes)
        self._threads = DiskThreads()
        self._measured_s: float | None = None
        self._lock: int | None = None
        self._preallocates: bool | None = None

    async def lock(self) -> None:
        """See `Disk.lock`."""
        if self._lock is None:
            self._lock = await self._control(self._take_lock, give_up=os.close)

    async def create(
        self, name: str, *, preallocate_bytes: int = 0, background: bool = False
    ) -> RealFile:
        """See `Disk.create`. Preallocates only if a measurement at the start shows that it pays."""
        if preallocate_bytes and self._preallocates is None:
            self._preallocates = await self._control(self._measure)
        size = preallocate_bytes if self._preallocates else 0
        self._capacity.take(name, size)
        descriptor = await self._control(self._create, name, size, give_up=os.close)
        threads = self._threads
        writer = threads.background if background else threads.log
        return RealFile(name, descriptor, size, threads, writer, self._capacity)

    async def open(self, name: str) -> RealFile:
        """See `Disk.open`."""
        threads = self._threads
        descriptor, size = await threads.control.obtain(self._open, name, give_up=_close_opened)
        return RealFile(name, descriptor, size, threads, threads.log, self._capacity)

    async def list_names(self, directory: str) -> list[str]:
        """See `Disk.list_names`."""
        return await self._control(self._list_names, directory)

    async def rename(self, old: str, new: str) -> None:
        """See `Disk.rename`."""
        await self._control(self._rename, old, new)

    async def unlink(self, name: str) -> None:
        """See `Disk.unlink`."""
        self._capacity.give(await self._control(self._unlink, name))

    async def sync_directory(self, directory: str) -> None:
        """See `Disk.sync_directory`."""
        await self._control(self._sync_directory, directory)

    async def file_identity(self, name: str) -> str:
        """See `Disk.file_identity`."""
        return await self._control(self._file_identity, name)

    async def lock_identity(self) -> str:
        """See `Disk.lock_identity`."""
        if self._lock is None:
            return ""
        return await self._control(disk_calls.lock_identity, self._lock)

    async def space(self, directory: str = "") -> DiskSpace:
        """See `Disk.space`."""
        space = await self._control(self._space, directory)
        if not self._capacity.limit_bytes:
            return space
        now_s = asyncio.get_running_loop().time()
        if self._measured_s is None or now_s - self._measured_s >= TREE_MEASURED_S:
            self._capacity.used_bytes = await self._control(measure_tree, self._root)
            self._measured_s = now_s
        return self._capacity.bounded(space, self._capacity.used_bytes)

    async def open_index(self, name: str, map_bytes: int) -> LmdbStore:
        """See `Disk.open_index`."""
        has_own_disk = await self._control(self._has_own_disk, name)
        return await LmdbStore.open(self._root / name, map_bytes, has_own_disk=has_own_disk)

    async def close(self) -> None:
        """See `Disk.close`."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
        self._threads.close()

    async def _control(
        self,
        call: Callable[..., Result],
        *arguments: object,
        give_up: Callable[[Result], object] | None = None,
    ) -> Result:
        """Run a call on the control thread; wait for a descriptor if none is free. `give_up` is
        `Threads.obtain`'s.
        """
        obtain = self._threads.control.obtain
        for _ in range(DESCRIPTOR_TRIES_MAX - 1):
            with contextlib.suppress(DescriptorsExhaustedError):
                return await obtain(call, *arguments, give_up=give_up)
            await asyncio.sleep(DESCRIPTOR_WAIT_S)
        return await obtain(call, *arguments, give_up=give_up)

    def _take_lock(self) -> int:
        with disk_calls.translated(str(self._root)):
            self._root.mkdir(mode=disk_calls.DIRECTORY_MODE, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
            descriptor = os.open(self._root / LOCK_NAME, flags, disk_calls.FILE_MODE)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            raise DirectoryLockedError(str(self._root)) from error
        return descriptor

    def _measure(self) -> bool:
        try:
            with disk_calls.translated(str(self._root)):
                self._root.mkdir(mode=disk_calls.DIRECTORY_MODE, parents=True, exist_ok=True)
                return disk_calls.preallocation_pays(self._root)
        except BookieError:  # no room, or not supported: later writes report which
            return False

    def _create(self, name: str, preallocate_bytes: int) -> int:
        path = self._root / name
        with disk_calls.translated(name):
            path.parent.mkdir(mode=disk_calls.DIRECTORY_MODE, parents=True, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            descriptor = os.open(path, flags, disk_calls.FILE_MODE)
        try:
            if preallocate_bytes:
                with disk_calls.translated(name):
                    os.posix_fallocate(descriptor, 0, preallocate_bytes)
        except DiskFullError:
            os.close(descriptor)
            os.unlink(path)
            raise
        return descriptor

    def _open(self, name: str) -> tuple[int, int]:
        try:
            descriptor = os.open(self._root / name, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_calls.translation(name, error) from error
        return descriptor, os.fstat(descriptor).st_size

    def _list_names(self, directory: str) -> list[str]:
        path = self._root / directory
        with disk_calls.translated(directory):
            return sorted(os.listdir(path)) if path.is_dir() else []

    def _rename(self, old: str, new: str) -> None:
        with disk_calls.translated(old):
            os.replace(self._root / old, self._root / new)

    def _unlink(self, name: str) -> int:
        path = self._root / name
        with disk_calls.translated(name):
            size = path.stat().st_size
            path.unlink()
        return size

    def _sync_directory(self, directory: str) -> None:
        with disk_calls.translated(directory):
            for path in (self._root / directory, self._root):  # the directory may be new itself
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(descriptor)
                finally:
                    os.close(descriptor)

    def _file_identity(self, name: str) -> str:
        try:
            return disk_calls.file_identity(self._root / name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_calls.translation(name, error) from error

    def _has_own_disk(self, directory: str) -> bool:
        """Return whether a directory is on another file system than the log."""
        paths = [self._root / name for name in (directory, "log")]
        return len({path.stat().st_dev for path in paths if path.exists()}) > 1

    def _space(self, directory: str) -> DiskSpace:
        path = self._root / directory
        with disk_calls.translated(str(path)):
            path = path if path.exists() else self._root
            volume, device = os.statvfs(path), path.stat().st_dev
        # Counted as df does: blocks reserved for root are neither used nor free.
        usable = volume.f_blocks - volume.f_bfree + volume.f_bavail
        return DiskSpace(usable * volume.f_frsize, volume.f_bavail * volume.f_frsize, device)


def measure_tree(root: Path) -> int:
    """Return the bytes of all files below a directory. Files that disappear are skipped."""
    total = 0
    for path in root.rglob("*"):
        try:
            stat = path.lstat()
        except FileNotFoundError:
            continue
        total += max(stat.st_size, stat.st_blocks * 512) if path.is_file() else 0
    return total
