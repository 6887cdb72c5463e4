"""Doubt in the free space that a file system reports, after it refused a write.

A quota, a file system without inodes and a thin volume that is full refuse writes while there seems
to be room. Leaves the marks of the disk to `bookie.storage.disk_watch`.

Invariants: after such a refusal a disk counts as full until a trial write has succeeded; each
further refusal within QUIET_S doubles the wait before the next trial, so that writers do not return
to a bookie that soon refuses them again.
Source: docs/operating.md, "A full disk".
"""

from typing import Final

from bookie.errors import DiskFullError
from bookie.files.disk import Disk
from bookie.log.segments import DIRECTORY, UNFINISHED_SUFFIX

TRIAL_NAME: Final = f"{DIRECTORY}/trial{UNFINISHED_SUFFIX}"
"""The next start removes the file, if this process ends before it does."""
TRIAL_BYTES_MAX: Final = 16 * 1024 * 1024
WAIT_S_MIN: Final = 5.0
WAIT_S_MAX: Final = 600.0
QUIET_S: Final = 3600.0
"""A refusal this long after the last trial that succeeded has nothing to do with those before."""


class DoubtfulRoom:
    """Refusals of one mount that its free space does not explain. Pure: times are arguments."""

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
