"""Room on the log's disk: the reserve, a file of written bytes that is removed when the disk is
full, and the doubt in the free space that a file system reports.

Leaves the time of the reserve's removal, and the marks of the disk, to `bookie.storage.disk_watch`.

Source: docs/operating.md, "A full disk"; storage design, "Limits and refusals".
"""

import asyncio
from typing import Final

from bookie.config import StorageConfig
from bookie.errors import DiskFullError, DiskTooSmallError
from bookie.files.disk import Disk, DiskSpace
from bookie.log.segments import DIRECTORY, UNFINISHED_SUFFIX

FILE_NAME: Final = "reserve"
NAME: Final = f"{DIRECTORY}/{FILE_NAME}"
START_BYTES: Final = 1024 * 1024
"""Approximate space that a start needs for its cookies and the index's first commit."""
SEGMENTS_MIN: Final = 2
"""Minimum number of segments that a disk must hold besides the reserve: the segment being written
cannot be cleaned.
"""
PIECE_BYTES: Final = 4 * 1024 * 1024
TRIAL_NAME: Final = f"{DIRECTORY}/trial{UNFINISHED_SUFFIX}"
"""The next start removes the file, if this process ends before it does."""
TRIAL_BYTES_MAX: Final = 16 * 1024 * 1024
WAIT_S_MIN: Final = 5.0
WAIT_S_MAX: Final = 600.0
QUIET_S: Final = 3600.0
"""A refusal this long after the last trial that succeeded has nothing to do with those before."""


class Reserve:
    """Reserve of one storage.

    Invariants: the file is next to the segments, on the log's file system; it is written, not
    sparse; it is created only if the disk then stays below its high mark.
    """

    def __init__(self, disk: Disk, config: StorageConfig) -> None:
        self.held_bytes = 0
        """Size of the file."""
        self._disk = disk
        self._config = config
        self.is_wanted = False
        """Whether the file is to exist."""
        self.found_no_room = False
        """Whether the file did not fit when it was wanted last."""
        self._is_measured = False
        self._wanted = asyncio.Event()
        self._changing = asyncio.Lock()

    async def measure(self) -> None:
        """Measure, once, the file that an earlier process left."""
        if self._is_measured:
            return
        async with self._changing:
            if FILE_NAME in await self._disk.list_names(DIRECTORY):
                file = await self._disk.open(NAME)
                self.held_bytes = file.size
                await file.close()
            self._is_measured = True

    def want(self) -> None:
        """Make `keep` create the file, if it does not exist."""
        self.is_wanted, self.found_no_room = True, False
        self._wanted.set()

    def give_up(self) -> None:
        """Stop making the file; it stays as it is until `release` or `want`."""
        self.is_wanted = self.found_no_room = False

    async def release(self) -> None:
        """Remove the file, to free its space."""
        self.is_wanted = False
        async with self._changing:
            await self._remove()

    async def keep(self) -> None:
        """Create the file whenever it is wanted, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            await self.measure()
            async with self._changing:
                await self._make()

    async def _remove(self) -> None:
        await remove_reserve(self._disk)
        self.held_bytes = 0

    async def _make(self) -> None:
        config, space = self._config, await self._disk.space(DIRECTORY)
        size = config.reserve_bytes(space.total_bytes)
        room = space.free_bytes + self.held_bytes - size
        if (
            not self.is_wanted
            or self.held_bytes >= size
            or room < (1.0 - config.disk_high_mark) * space.total_bytes
        ):
            return
        await self._remove()  # left unfinished by an earlier process
        try:
            file = await self._disk.create(NAME, background=True)
        except DiskFullError:  # no room for a name
            self.is_wanted, self.found_no_room = False, True
            return
        try:
            for offset in range(0, size, PIECE_BYTES):
                if not self.is_wanted:
                    break
                piece = bytes(min(PIECE_BYTES, size - offset))
                await file.commit(offset, [piece])
                self.held_bytes = offset + len(piece)
                file.drop_cached(offset, len(piece))
                await asyncio.sleep(len(piece) / config.clean_bytes_per_s_min)
        except DiskFullError:
            self.is_wanted, self.found_no_room = False, True
        finally:
            await file.close()
        if not self.is_wanted:
            await self._remove()
        else:
            await self._disk.sync_directory(DIRECTORY)


def check_room(space: DiskSpace, config: StorageConfig) -> None:
    """Check that a disk has room for the reserve and SEGMENTS_MIN segments, before it is formatted.
    Raises DiskTooSmallError.
    """
    reserve = config.reserve_bytes(space.total_bytes)
    needed = reserve + SEGMENTS_MIN * config.segment_bytes_max
    usable = space.free_bytes - int((1.0 - config.disk_high_mark) * space.total_bytes)
    if usable < needed:
        parts = (
            f"a reserve of {reserve} (reserve_bytes_min {config.reserve_bytes_min}, and room to "
            f"rewrite one log file), and {SEGMENTS_MIN} log files of segment_bytes_max "
            f"{config.segment_bytes_max}"
        )
        raise DiskTooSmallError(space.total_bytes, usable, needed, parts)


async def make_room(disk: Disk, config: StorageConfig) -> bool:
    """Remove the reserve of a full disk before a start writes its first byte; return whether it was
    removed. It is created again when there is room.
    """
    free_bytes = (await disk.space(DIRECTORY)).free_bytes
    if free_bytes >= max(START_BYTES, config.reserve_bytes_min):
        return False
    return await remove_reserve(disk)


async def remove_reserve(disk: Disk) -> bool:
    """Remove the file; return whether it existed."""
    if FILE_NAME not in await disk.list_names(DIRECTORY):
        return False
    await disk.unlink(NAME)
    await disk.sync_directory(DIRECTORY)
    return True


class DoubtfulRoom:
    """Doubt in one file system's free space, after it refused a write. A quota, a file system
    without inodes and a thin volume that is full refuse writes while there seems to be room.

    Invariants: after such a refusal a disk counts as full until a trial write has succeeded; each
    further refusal within QUIET_S doubles the wait before the next trial, so that writers do not
    return to a bookie that soon refuses them again.
    """

    def __init__(self) -> None:
        self.is_doubtful = False
        self._refusal_count = 0
        self._try_at_s = 0.0
        self._proved_at_s = 0.0

    def note_refusal(self, now_s: float) -> float:
        """Record a refused write, or a trial that failed; return after how many seconds the next
        trial may begin.
        """
        if not self.is_doubtful and now_s - self._proved_at_s >= QUIET_S:
            self._refusal_count = 0
        self.is_doubtful = True
        wait_s = min(WAIT_S_MAX, WAIT_S_MIN * (1 << self._refusal_count))
        self._refusal_count += wait_s < WAIT_S_MAX
        self._try_at_s = now_s + wait_s
        return wait_s

    def may_try(self, now_s: float) -> bool:
        """Return whether a trial may begin."""
        return self.is_doubtful and now_s >= self._try_at_s

    def note_proof(self, now_s: float) -> None:
        """Record that a trial has succeeded."""
        self.is_doubtful = False
        self._proved_at_s = now_s


async def try_to_write(disk: Disk, segment_bytes_max: int) -> bool:
    """Write a file as large as a segment, at most TRIAL_BYTES_MAX, and remove it; return whether
    there was room. Raises DiskFailedError.
    """
    try:
        file = await disk.create(TRIAL_NAME, background=True)
    except DiskFullError:
        return False
    try:
        await file.commit(0, [bytes(min(segment_bytes_max, TRIAL_BYTES_MAX))])
    except DiskFullError:
        return False
    else:
        return True
    finally:
        await file.close()
        await disk.unlink(TRIAL_NAME)
