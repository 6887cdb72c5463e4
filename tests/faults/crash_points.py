"""Crash points: SIGKILL of the process at a named place of the storage's work.

Leaves the work before it to `storage_writer`. The production functions are wrapped, not changed.

Format of the variable: `NAME:COUNT`, the process ends at the COUNT-th time that it reaches NAME.
Empty: no crash point is installed.
"""

import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from bookie.files import disk_calls
from bookie.files.disk import Buffer, StoreTransaction
from bookie.files.disk_real import RealDisk, RealFile
from bookie.files.index_lmdb import LmdbStore
from bookie.log import records
from bookie.log.records import RecordKind
from bookie.log.segments import UNFINISHED_SUFFIX

VARIABLE: Final = "QUIRE_FAULTS_CRASH"
_WRITES: Final = ("before", "half", "unsynced", "synced")
POINTS: Final[dict[str, int]] = {
    **{f"write.{step}": 80 for step in _WRITES},
    **{f"head.{step}": 5 for step in _WRITES},
    **{f"seal.{step}": 5 for step in _WRITES},
    **{f"clean.{step}": 3 for step in _WRITES},
    "roll.created": 5,
    "names.synced": 8,
    "truncate.before": 1,
    "truncate.cut": 1,
    "truncate.synced": 1,
    "checkpoint.before": 8,
    "checkpoint.during": 8,
    "checkpoint.after": 8,
    "rename.before": 3,
    "rename.after": 3,
    "unlink.before": 4,
    "unlink.after": 4,
}
"""Name of each place, and approximately how often a short run reaches it."""
_KIND_OFFSET: Final = 3
_COMMIT_S: Final = (0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001)


class CrashPoint:
    """One place, and how often it may still be passed."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.left = count

    def is_here(self, name: str) -> bool:
        """Return whether this is the place and the time."""
        if name != self.name:
            return False
        self.left -= 1
        return self.left == 0

    def hit(self, name: str) -> None:
        """End the process if this is the place and the time."""
        if self.is_here(name):
            os.kill(os.getpid(), signal.SIGKILL)


def install(wanted: str) -> None:
    """Wrap the functions at the named place."""
    if not wanted:
        return
    name, count = wanted.split(":")
    assert name in POINTS, f"no place is named {name}"
    point = CrashPoint(name, int(count))
    _wrap_writes(point)
    _wrap_names(point)
    _wrap_truncation(point)
    _wrap_commits(point, int(count))


def wrap(owner: object, name: str, make: Callable[[Callable[..., Any]], object]) -> None:
    """Replace a function of a module or class by the result of `make`."""
    setattr(owner, name, make(getattr(owner, name)))


def _wrap_writes(point: CrashPoint) -> None:
    def around_write(real: Callable[..., Any]) -> object:
        def write_all(descriptor: int, offset: int, buffers: Sequence[Buffer]) -> None:
            what = _what_is_written(descriptor, buffers)
            point.hit(f"{what}.before")
            if point.is_here(f"{what}.half"):
                data = b"".join(buffers)
                real(descriptor, offset, [data[: len(data) // 2]])
                os.kill(os.getpid(), signal.SIGKILL)
            real(descriptor, offset, buffers)
            point.hit(f"{what}.unsynced")

        return write_all

    def around_sync(real: Callable[..., Any]) -> object:
        def write_and_sync(
            descriptor: int, name: str, offset: int, buffers: Sequence[Buffer]
        ) -> float:
            took_s: float = real(descriptor, name, offset, buffers)
            point.hit(f"{_what_is_written(descriptor, buffers)}.synced")
            return took_s

        return write_and_sync

    wrap(disk_calls, "write_all", around_write)
    wrap(disk_calls, "write_and_sync", around_sync)


def _what_is_written(descriptor: int, buffers: Sequence[Buffer]) -> str:
    """Return what is written: a log group, a segment's head or footer, or a cleaned segment."""
    name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
    if name.endswith(UNFINISHED_SUFFIX):
        return "clean"
    first = bytes(buffers[0][: records.RECORD_HEADER_BYTES]) if buffers else b""
    if not name.endswith(".log") or len(first) < records.RECORD_HEADER_BYTES:
        return "other"
    kinds = {int(RecordKind.HEAD): "head", int(RecordKind.FOOTER): "seal"}
    return kinds.get(first[_KIND_OFFSET], "write")


def _wrap_names(point: CrashPoint) -> None:
    def around(before: str, after: str) -> Callable[[Callable[..., Any]], object]:
        def make(real: Callable[..., Any]) -> object:
            def call(*arguments: Any) -> object:
                point.hit(before)
                result = real(*arguments)
                point.hit(after)
                return result

            return call

        return make

    wrap(RealDisk, "_create", around("", "roll.created"))
    wrap(RealDisk, "_sync_directory", around("", "names.synced"))
    wrap(RealDisk, "_rename", around("rename.before", "rename.after"))
    wrap(RealDisk, "_unlink", around("unlink.before", "unlink.after"))
    wrap(RealFile, "_truncate", around("truncate.before", "truncate.synced"))


def _wrap_truncation(point: CrashPoint) -> None:
    def around(real: Callable[..., Any]) -> object:
        def ftruncate(descriptor: int, size: int) -> None:
            real(descriptor, size)
            point.hit("truncate.cut")

        return ftruncate

    wrap(os, "ftruncate", around)


def _wrap_commits(point: CrashPoint, count: int) -> None:
    """Wrap LMDB's commit; `checkpoint.during` is a timer, since the commit is one foreign call."""

    def around(real: Callable[..., Any]) -> object:
        def update(
            store: LmdbStore, job: Callable[[StoreTransaction], object], keeps_room: object
        ) -> object:
            def doomed(transaction: StoreTransaction) -> object:
                result = job(transaction)
                point.hit("checkpoint.before")
                if point.is_here("checkpoint.during"):
                    signal.setitimer(signal.ITIMER_REAL, _COMMIT_S[count % len(_COMMIT_S)])
                return result

            result = real(store, doomed, keeps_room)
            point.hit("checkpoint.after")
            return result

        return update

    wrap(LmdbStore, "_update", around)
