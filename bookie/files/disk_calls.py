"""System calls of a real disk, with replacements for calls that a system does not have; threads
that make them; and the identity of a file and of a held lock, as the system reports them.

Leaves the order of calls to `bookie.files.disk_real`, and the consequences of an identity to
`bookie.identity.identity`.

Format: a file's identity is `<inode>@<birth time, ns>`, or `<inode>` where the file system or the
system keeps no birth time. A lock's identity is `<boot id>:<device>:<inode>`, or empty where the
system names no boot.

Invariants: `write_and_sync` returns only after the device has acknowledged a flush (on macOS,
F_FULLFSYNC); every OSError is raised as a BookieError. Copying a file gives it another identity; a
restart of the machine does not. A device number may change at a restart of the machine, so it
appears only together with the boot id.

Source: reliability design, D7-D9; storage design, "Threads"; protocol rule 2.6; statx(2), proc(5),
stat(2) of macOS.
"""

import asyncio
import contextlib
import ctypes
import errno
import fcntl
import os
import queue
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from bookie.errors import (
    BookieError,
    DescriptorsExhaustedError,
    DiskFailedError,
    DiskFullError,
    NotPermittedError,
    SyncFullError,
    UnreadableError,
)

Buffer = bytes | bytearray | memoryview

JOIN_BELOW_BYTES: Final = 16 * 1024
"""Groups whose mean buffer is smaller are copied into one buffer, which is cheaper than many short
vectors.
"""
VECTORS_MAX: Final = 512
FILE_MODE: Final = 0o600
DIRECTORY_MODE: Final = 0o700
PROBE_BYTES: Final = 1024
PROBE_WRITES: Final = 24
PREALLOCATION_COST_MAX: Final = 1.25

_NO_SPACE: Final = (errno.ENOSPC, errno.EDQUOT)
_UNREADABLE: Final = (errno.EIO, errno.EBADMSG, errno.ENODATA, getattr(errno, "EUCLEAN", errno.EIO))
"""Answers of a device for a bad sector, and of a file system that found damage in the bytes."""
_NO_DESCRIPTOR: Final = (errno.EMFILE, errno.ENFILE)
_FULL_FSYNC: Final[int | None] = getattr(fcntl, "F_FULLFSYNC", None)
_fdatasync: Final[Callable[[int], None]] = getattr(os, "fdatasync", os.fsync)


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise an OSError as the BookieError that it means."""
    try:
        yield
    except OSError as error:
        raise translation(what, error) from error


def translation(what: str, error: OSError) -> BookieError:
    """Return the BookieError that an OSError means."""
    if error.errno in _NO_DESCRIPTOR:
        return DescriptorsExhaustedError(what, str(error))
    if error.errno in _NO_SPACE:
        return DiskFullError(what)
    if isinstance(error, PermissionError):
        return NotPermittedError(what, str(error))
    return DiskFailedError(what, str(error))


def sync(descriptor: int) -> None:
    """Make a file's bytes and size survive power loss."""
    if _FULL_FSYNC is not None:
        fcntl.fcntl(descriptor, _FULL_FSYNC)
    else:
        _fdatasync(descriptor)


def sync_bytes(descriptor: int, what: str) -> None:
    """Sync as `sync` does. Raises SyncFullError, DiskFailedError."""
    try:
        sync(descriptor)
    except OSError as error:
        if error.errno in _NO_SPACE:
            raise SyncFullError(what) from error
        raise translation(what, error) from error


def write_and_sync(descriptor: int, what: str, offset: int, buffers: Sequence[Buffer]) -> float:
    """Write the buffers at `offset`, continuing short writes, and sync once. Return the duration in
    seconds.
    """
    start = time.perf_counter()
    try:  # not `translated`: a context manager costs more than all else here
        write_all(descriptor, offset, buffers)
    except OSError as error:
        raise translation(what, error) from error
    sync_bytes(descriptor, what)
    return time.perf_counter() - start


def write_all(descriptor: int, offset: int, buffers: Sequence[Buffer]) -> None:
    """Write the buffers one after another at `offset`. Raises OSError."""
    if not hasattr(os, "pwritev") or sum(map(len, buffers)) < JOIN_BELOW_BYTES * len(buffers):
        _write_one(descriptor, offset, b"".join(buffers))
        return
    for start in range(0, len(buffers), VECTORS_MAX):
        offset = _write_vectors(descriptor, offset, buffers[start : start + VECTORS_MAX])


def _write_one(descriptor: int, offset: int, data: bytes) -> None:
    written = os.pwrite(descriptor, data, offset)
    while written < len(data):
        written += os.pwrite(descriptor, memoryview(data)[written:], offset + written)


def _write_vectors(descriptor: int, offset: int, buffers: Sequence[Buffer]) -> int:
    remaining = [memoryview(buffer) for buffer in buffers]
    while remaining:
        written = os.pwritev(descriptor, remaining, offset)
        offset += written
        done = 0
        while done < len(remaining) and written >= len(remaining[done]):
            written -= len(remaining[done])
            done += 1
        remaining = remaining[done:]
        if remaining and written:
            remaining[0] = remaining[0][written:]
    return offset


def read_all(descriptor: int, what: str, offset: int, size: int) -> bytes:
    """Read `size` bytes, continuing short reads; fewer at the end of the file. Raises
    UnreadableError, DiskFailedError.
    """
    try:
        data = os.pread(descriptor, size, offset)
        while len(data) < size and (
            more := os.pread(descriptor, size - len(data), offset + len(data))
        ):
            data += more
    except OSError as error:
        if error.errno in _UNREADABLE:
            raise UnreadableError(what, str(error)) from error
        raise translation(what, error) from error
    return data


def drop_cached(descriptor: int, offset: int, size: int) -> None:
    """Advise the system that bytes will not be read soon, where the system supports it."""
    if hasattr(os, "posix_fadvise"):
        with contextlib.suppress(OSError):  # advice only; the file may be closed by now
            os.posix_fadvise(descriptor, offset, size, os.POSIX_FADV_DONTNEED)


def preallocation_pays(directory: Path) -> bool:
    """Measure whether small synced writes into preallocated blocks are about as fast as appends."""
    if not hasattr(os, "posix_fallocate"):
        return False
    appended = _probe(directory / "probe-append", 0)
    preallocated = _probe(directory / "probe-preallocated", 16 * PROBE_BYTES * PROBE_WRITES)
    return preallocated <= appended * PREALLOCATION_COST_MAX


def _probe(path: Path, preallocate_bytes: int) -> float:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC, FILE_MODE)
    try:
        if preallocate_bytes:
            os.posix_fallocate(descriptor, 0, preallocate_bytes)
        os.fsync(descriptor)
        times = []
        for number in range(PROBE_WRITES):
            start = time.perf_counter()
            os.pwrite(descriptor, b"q" * PROBE_BYTES, number * PROBE_BYTES)
            sync(descriptor)
            times.append(time.perf_counter() - start)
        return sorted(times)[PROBE_WRITES // 2]
    finally:
        os.close(descriptor)
        os.unlink(path)


BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
BOOT_ID_MACOS: Final = b"kern.bootsessionuuid"
BOOT_ID_BYTES_MAX: Final = 64

_AT_FDCWD: Final = -100
_STATX_BTIME: Final = 0x800
_STATX_BYTES: Final = 256
_MASK: Final = struct.Struct("=I")
_INODE_OFFSET: Final = 32
_INODE: Final = struct.Struct("=Q")
_BIRTH_OFFSET: Final = 80
_BIRTH: Final = struct.Struct("=qI")
_NS_PER_S: Final = 1_000_000_000


def file_identity(path: Path) -> str:
    """Return the identity of a file. Raises OSError."""
    stat = path.stat()
    born_ns = _birth_ns(path, stat)
    return str(stat.st_ino) if born_ns is None else f"{stat.st_ino}@{born_ns}"


def is_same_file(one: str, other: str) -> bool:
    """Return whether two identities are of one file. Birth times are compared only if both have
    one: a newer kernel may report what an older one does not.
    """
    one_inode, _, one_born = one.partition("@")
    other_inode, _, other_born = other.partition("@")
    if one_inode != other_inode:
        return False
    return one_born == other_born or not (one_born and other_born)


def lock_identity(descriptor: int) -> str:
    """Return the identity of a lock file that this process holds; empty where the system names no
    boot. Raises OSError.
    """
    boot_id = _boot_id()
    stat = os.fstat(descriptor)
    return f"{boot_id}:{stat.st_dev}:{stat.st_ino}" if boot_id else ""


def _birth_ns(path: Path, stat: os.stat_result) -> int | None:
    born_s: float | None = getattr(stat, "st_birthtime", None)
    if born_s is not None:  # macOS and the BSDs
        born_ns: int = getattr(stat, "st_birthtime_ns", int(born_s * _NS_PER_S))
        return born_ns
    call = _statx()
    if call is None:
        return None
    buffer = ctypes.create_string_buffer(_STATX_BYTES)
    if call(_AT_FDCWD, os.fsencode(path), 0, _STATX_BTIME, buffer) != 0:
        return None
    (mask,) = _MASK.unpack_from(buffer.raw, 0)
    if not mask & _STATX_BTIME or _INODE.unpack_from(buffer.raw, _INODE_OFFSET) != (stat.st_ino,):
        return None
    seconds, nanoseconds = _BIRTH.unpack_from(buffer.raw, _BIRTH_OFFSET)
    return int(seconds * _NS_PER_S + nanoseconds)


def _statx() -> Callable[..., int] | None:
    call: Callable[..., int] | None = getattr(ctypes.CDLL(None), "statx", None)
    return call


def _boot_id() -> str:
    try:
        return BOOT_ID.read_text("ascii").strip()
    except OSError:
        return _boot_id_macos()


def _boot_id_macos() -> str:
    call: Callable[..., int] | None = getattr(ctypes.CDLL(None), "sysctlbyname", None)
    if call is None:
        return ""
    buffer = ctypes.create_string_buffer(BOOT_ID_BYTES_MAX)
    size = ctypes.c_size_t(BOOT_ID_BYTES_MAX)
    if call(BOOT_ID_MACOS, buffer, ctypes.byref(size), None, ctypes.c_size_t(0)) != 0:
        return ""
    return buffer.value.decode("ascii", errors="replace")


Result = TypeVar("Result")

JOIN_S_MAX: Final = 30.0


class Threads:
    """Daemon threads that share one queue of calls. With one thread, calls run one after another in
    the order in which they were queued.
    """

    def __init__(self, name: str, count: int = 1) -> None:
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True)
            for number in range(count)
        ]
        for thread in self._threads:
            thread.start()

    def run(self, call: Callable[..., Result], *arguments: Any) -> "asyncio.Future[Result]":
        """Queue a call; the future receives its result or exception."""
        future: asyncio.Future[Result] = self._loop.create_future()
        self._jobs.put((call, arguments, future))
        return future

    async def obtain(
        self,
        call: Callable[..., Result],
        *arguments: Any,
        give_up: Callable[[Result], object] | None,
    ) -> Result:
        """Run a call for its result. If the caller is cancelled, `give_up` takes the result of the
        call, which runs to its end: what the call opened does not stay open. Needs one thread.
        """
        results: list[Result] = []

        def keep() -> Result:
            results.append(call(*arguments))
            return results[0]

        try:
            return await self.run(keep)
        except asyncio.CancelledError:
            if give_up is not None:
                self.run(lambda: [give_up(result) for result in results])
            raise

    def close(self) -> None:
        """Stop the threads after every queued call has run."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join(JOIN_S_MAX)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            call, arguments, future = job
            try:
                result = call(*arguments)
            except BaseException as error:  # noqa: BLE001 - raised again by the future
                self._answer(_fail, future, error)
            else:
                self._answer(_succeed, future, result)
            del job, call, arguments, future

    def _answer(self, *call: Any) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: no task waits for the result
            self._loop.call_soon_threadsafe(*call)


_Job = tuple[Callable[..., Any], tuple[Any, ...], "asyncio.Future[Any]"]


def _succeed(future: "asyncio.Future[Any]", result: object) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[Any]", error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
