"""Keeps the list of segment files and opens them for reading.

Leaves writing to `bookie.log.log`, and which of them may go to `bookie.storage.cleaning`.

Format of a name: the segment number as 8 hexadecimal digits, then `.log` (written in log order) or
`.clean` (rewritten by cleaning, never replayed), and a further `.new` while a rewritten segment or
a copy of the log's tail is being written: what a crash left of it is removed at the next start.
Invariant: at most `OPEN_FILES_MAX` files are open for reading at a time.
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final

from bookie.errors import DamagedRecordError, DescriptorsExhaustedError
from bookie.files.disk import Buffer, Disk, File

DIRECTORY: Final = "log"
OPEN_FILES_MAX: Final = 256
DESCRIPTOR_WAIT_S: Final = 1.0
"""Background work that finds no descriptor left tries again after this."""
UNFINISHED_SUFFIX: Final = ".new"
_SUFFIXES: Final = {".log": False, ".clean": True}
_DIGITS: Final = 8


@dataclass(slots=True)
class Segment:
    """One file of the log."""

    number: int
    is_cleaned: bool
    size: int
    """Bytes of records; a preallocated file is longer."""
    live_bytes: int = 0
    """Bytes that the index names, about; cleaning looks for itself before it drops anything."""
    mean_run_bytes: int | None = None
    """Mean bytes of its runs, adjacent records taken together; None until cleaning looked."""
    record_count: int | None = None
    """Adds records that its footer lists, 0 without a footer; None until cleaning looked."""
    is_counted: bool = False
    """Whether cleaning compared `live_bytes` with the index in this turn."""
    is_kept: bool = False
    """The last pass could not account for its runs, or not move them: others come first."""
    is_damaged: bool = False
    """Holds damage: it is kept whatever its live bytes."""
    predecessor_end: int | None = None
    """Where its head says that the log before it ended, as found at the start; None when it says
    nothing.
    """

    @property
    def name(self) -> str:
        """The file's name."""
        return segment_name(self.number, is_cleaned=self.is_cleaned)


def segment_name(number: int, *, is_cleaned: bool) -> str:
    """Return a segment's file name."""
    return f"{DIRECTORY}/{number:0{_DIGITS}x}{'.clean' if is_cleaned else '.log'}"


def parse_name(name: str) -> tuple[int, bool] | None:
    """Return the number of a segment's file and whether it was rewritten; None for any other
    file.
    """
    digits, suffix = name[:_DIGITS], name[_DIGITS:]
    if suffix not in _SUFFIXES or any(digit not in "0123456789abcdef" for digit in digits):
        return None
    return int(digits, 16), _SUFFIXES[suffix]


class Segments:
    """Every segment by number, ascending."""

    def __init__(self, disk: Disk) -> None:
        self.by_number: dict[int, Segment] = {}
        self.next_number = 1
        self.pinned = 0
        """The segment that is being written: its file is the log's, and stays open."""
        self._disk = disk
        self._files: dict[int, File] = {}
        self._opening: dict[int, asyncio.Task[None]] = {}

    def add(self, segment: Segment) -> None:
        """Take note of a file."""
        self.by_number[segment.number] = segment
        self.note_used(segment.number)

    def note_used(self, number: int) -> None:
        """Give no segment this number, nor one below it, from now on."""
        self.next_number = max(self.next_number, number + 1)

    def damaged(self) -> list[int]:
        """Return the segments that hold damage."""
        return [number for number, segment in self.by_number.items() if segment.is_damaged]

    def free(self, freed: dict[int, int]) -> None:
        """Take note of bytes, by segment, that the index names no more."""
        for number, size in freed.items():
            if number in self.by_number:
                self.by_number[number].live_bytes -= size

    def take_number(self) -> int:
        """Return a number that no segment has had."""
        number = self.next_number
        self.next_number += 1
        return number

    def adopt(self, segment: Segment, file: File) -> None:
        """Take note of a file that is open already."""
        self.add(segment)
        self._files[segment.number] = file

    def read_nowait(self, number: int, offset: int, size: int) -> Buffer | None:
        """Return bytes that are in memory already, else None."""
        file = self._files.get(number)
        return None if file is None else file.read_nowait(offset, size)

    async def read(self, number: int, offset: int, size: int) -> Buffer:
        """Return bytes of a segment, fewer at its end. Raises DamagedRecordError when it is
        missing, DescriptorsExhaustedError.
        """
        file = self._files.get(number)
        if file is None:
            await self._ensure_open(number)
            file = self._files.get(number)
            if file is None:
                raise DamagedRecordError(f"segment {number}, which was removed,")
        return await file.read(offset, size)

    async def read_patiently(self, number: int, offset: int, size: int) -> Buffer:
        """Return what `read` does; while no descriptor is left, wait for one."""
        while True:
            with contextlib.suppress(DescriptorsExhaustedError):
                return await self.read(number, offset, size)
            await asyncio.sleep(DESCRIPTOR_WAIT_S)

    async def open_file(self, number: int) -> File:
        """Return a file of the caller's own to read all of a segment; the caller closes it. While
        no descriptor is left, this waits for one.
        """
        while True:
            with contextlib.suppress(DescriptorsExhaustedError):
                return await self._open_own(number)
            await asyncio.sleep(DESCRIPTOR_WAIT_S)

    async def _open_own(self, number: int) -> File:
        segment = self.by_number.get(number)
        if segment is None:
            raise DamagedRecordError(f"segment {number}, which is missing,")
        try:
            return await self._disk.open(segment.name)
        except FileNotFoundError:
            segment.is_damaged = True
            raise DamagedRecordError(segment.name) from None

    async def remove(self, number: int) -> None:
        """Unlink a segment once the reads of it that are under way have ended. The caller syncs the
        directory.
        """
        segment = self.by_number.pop(number)
        file = self._files.pop(number, None)
        await self._disk.unlink(segment.name)
        if file is not None:
            await file.close()

    async def close(self) -> None:
        """Close every file."""
        await asyncio.gather(*self._opening.values(), return_exceptions=True)
        files, self._files = self._files, {}
        for file in files.values():
            await file.close()

    async def _ensure_open(self, number: int) -> None:
        """Open a segment for all who want it, in a task of its own: a reader that goes away leaves
        nothing half done.
        """
        opening = self._opening.get(number)
        if opening is None:
            opening = self._opening[number] = asyncio.create_task(self._open(number))
            opening.add_done_callback(lambda task: self._note_opened(number, task))
        await asyncio.shield(opening)

    def _note_opened(self, number: int, task: asyncio.Task[None]) -> None:
        self._opening.pop(number, None)
        if not task.cancelled():
            task.exception()  # whoever waits has it; it is no news when all went away

    async def _open(self, number: int) -> None:
        file = await self._open_own(number)
        if number in self._files or number not in self.by_number:
            await file.close()
            return
        self._files[number] = file
        surplus = [other for other in self._files if other not in (number, self.pinned)]
        for other in surplus[: max(0, len(surplus) - OPEN_FILES_MAX)]:
            await self._files.pop(other).close()
