"""Watch of the free space on one storage's disks. It decides when a disk is full and what may still
be written.

Leaves freeing space to `bookie.storage.upkeep`, and the reserve's file to `bookie.log.reserve`.

Invariants: space that the reserve lacks counts as used, so a bookie is writable again only when its
reserve fits too; while the reserve is removed, recovery adds leave the floor free, which fences,
tombstones, index pages and one rewrite may use; after a refusal that the free space does not
explain, only the room of the removed reserve counts as free, and the reserve must be written again
and a trial write succeed before the bookie is writable.
Source: docs/operating.md, "A full disk"; storage design, "Limits and refusals".
"""

import asyncio
from collections.abc import Callable
from typing import Final

from bookie.config import StorageConfig
from bookie.files.disk import Disk, DiskSpace, StoreSizes
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
        text = describe_use(LOG, space, config.disk_high_mark)
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
            text = describe_use(name, space, self._config.disk_high_mark)
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
        """Free bytes that a write of the log certainly finds: in doubt those of the removed
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


def describe_use(name: str, space: DiskSpace, high_mark: float) -> str:
    """Return a sentence that says how full the disk of a directory is."""
    used = 1.0 - space.free_bytes / max(1, space.total_bytes)
    return (
        f"the disk of {name}/ is {used:.1%} full, the high mark is {high_mark:.1%}: "
        f"{space.free_bytes} of {space.total_bytes} bytes are free"
    )
