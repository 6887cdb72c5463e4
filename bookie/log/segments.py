"""List of the segment files, and access to them for reading: of requests, and of a start.

Leaves writing to `bookie.log.log`, and the choice of files to remove to `bookie.storage.cleaning`.

Format of a name: the segment number as 8 hexadecimal digits, then `.log` (written in log order) or
`.clean` (rewritten by cleaning, never replayed), and a further `.new` while a rewritten segment or
a copy of the log's tail is being written: the next start removes a `.new` file that a crash left.
Invariant: at most `OPEN_FILES_MAX` shared files are open for reading at a time.
Source: protocol rule 2.4; storage design, "One log".
"""

import asyncio
import contextlib
from dataclasses import dataclass
from typing import Final, Protocol

from bookie.errors import (
    DamagedRecordError,
    DescriptorsExhaustedError,
    UnreadableError,
)
from bookie.files.disk import Buffer, Disk, File

DIRECTORY: Final = "log"
OPEN_FILES_MAX: Final = 256
DESCRIPTOR_WAIT_S: Final = 1.0
"""Time to wait for a free descriptor between two tries of background work, in seconds."""
UNFINISHED_SUFFIX: Final = ".new"
_SUFFIXES: Final = {".log": False, ".clean": True}
_DIGITS: Final = 8


@dataclass(slots=True)
class Segment:
    """One file of the log."""

    number: int
    is_cleaned: bool
    size: int
    """Bytes of records. A preallocated file is longer."""
    live_bytes: int = 0
    """Approximate bytes that the index names. Cleaning checks the index before it drops a
    segment.
    """
    mean_run_bytes: int | None = None
    """Mean bytes of its runs, with adjacent records joined; None until cleaning has measured it."""
    record_count: int | None = None
    """Number of adds records in its footer, 0 without a footer; None until cleaning has read it."""
    is_measure_stored: bool = False
    """Whether the index stores the two values above."""
    is_counted: bool = False
    """Whether cleaning has compared `live_bytes` with the index in this pass."""
    is_kept: bool = False
    """The last pass could not find or move all of its runs: other segments come first."""
    is_damaged: bool = False
    """Whether it holds damage: then it is kept until the index names nothing in it."""
    predecessor_end: int | None = None
    """End of the log before it, from its head, read at the start; None if the head does not say."""

    @property
    def name(self) -> str:
        """Name of the file."""
        return segment_name(self.number, is_cleaned=self.is_cleaned)


def segment_name(number: int, *, is_cleaned: bool) -> str:
    """Return a segment's file name."""
    return f"{DIRECTORY}/{number:0{_DIGITS}x}{'.clean' if is_cleaned else '.log'}"


def parse_name(name: str) -> tuple[int, bool] | None:
    """Return the number of a segment's file and whether cleaning wrote it; None for any other
    file.
    """
    digits, suffix = name[:_DIGITS], name[_DIGITS:]
    if suffix not in _SUFFIXES or any(digit not in "0123456789abcdef" for digit in digits):
        return None
    return int(digits, 16), _SUFFIXES[suffix]


class Segments:
    """All segments, by ascending number."""

    def __init__(self, disk: Disk) -> None:
        self.by_number: dict[int, Segment] = {}
        self.next_number = 1
        self.pinned = 0
        """Number of the segment that is being written: the log uses its file, which stays open."""
        self._disk = disk
        self._files: dict[int, File] = {}
        self._opening: dict[int, asyncio.Task[None]] = {}

    def add(self, segment: Segment) -> None:
        """Add a segment."""
        self.by_number[segment.number] = segment
        self.note_used(segment.number)

    def note_used(self, number: int) -> None:
        """Never assign this number or a lower one to a new segment."""
        self.next_number = max(self.next_number, number + 1)

    def damaged(self) -> list[int]:
        """Return the segments that hold damage."""
        return [number for number, segment in self.by_number.items() if segment.is_damaged]

    def free(self, freed: dict[int, int]) -> None:
        """Subtract bytes, by segment, that the index no longer names."""
        for number, size in freed.items():
            if number in self.by_number:
                self.by_number[number].live_bytes -= size

    def take_number(self) -> int:
        """Return a number that no segment has used."""
        number = self.next_number
        self.next_number += 1
        return number

    def adopt(self, segment: Segment, file: File) -> None:
        """Add a segment whose file is already open."""
        self.add(segment)
        self._files[segment.number] = file

    def read_nowait(self, number: int, offset: int, size: int) -> Buffer | None:
        """Return bytes that are already in memory, else None."""
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

    def drop_cached(self, number: int, offset: int, size: int) -> None:
        """Advise the system that bytes which were read will not be read again soon."""
        file = self._files.get(number)
        if file is not None:
            file.drop_cached(offset, size)

    async def read_or_wait(self, number: int, offset: int, size: int) -> Buffer:
        """Read as `read` does; wait while no descriptor is free."""
        while True:
            with contextlib.suppress(DescriptorsExhaustedError):
                return await self.read(number, offset, size)
            await asyncio.sleep(DESCRIPTOR_WAIT_S)

    async def open_file(self, number: int) -> File:
        """Open a separate file to read all of a segment; the caller closes it. Waits while no
        descriptor is free.
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
        """Unlink a segment, and close its file after its running reads have ended. The caller syncs
        the directory.
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
        """Open a segment in a separate task, shared by all its readers, so that a cancelled reader
        does not interrupt the opening.
        """
        opening = self._opening.get(number)
        if opening is None:
            opening = self._opening[number] = asyncio.create_task(self._open(number))
            opening.add_done_callback(lambda task: self._note_opened(number, task))
        await asyncio.shield(opening)

    def _note_opened(self, number: int, task: asyncio.Task[None]) -> None:
        self._opening.pop(number, None)
        if not task.cancelled():
            task.exception()  # marked as read: waiting readers receive it

    async def _open(self, number: int) -> None:
        file = await self._open_own(number)
        if number in self._files or number not in self.by_number:
            await file.close()
            return
        self._files[number] = file
        surplus = [other for other in self._files if other not in (number, self.pinned)]
        for other in surplus[: max(0, len(surplus) - OPEN_FILES_MAX)]:
            await self._files.pop(other).close()


BLOCK_BYTES: Final = 4096
"""The page cache reads at least this much at once, so one bad sector fails all of it."""


UNREADABLE_BYTES_MAX: Final = 1024 * 1024
"""A start gives up at more unreadable bytes: then the disk, or its cable, is at fault, and the
data may come back.
"""


class ReadableFile(Protocol):
    """The part of a `File` that reads."""

    @property
    def size(self) -> int:
        """See `File.size`."""

    async def read(self, offset: int, size: int) -> Buffer:
        """See `File.read`."""

    async def close(self) -> None:
        """See `File.close`."""


class StartFiles:
    """Files of the log as a start reads them: bytes that the disk cannot read are read as zeros.

    Invariants: every block of zeros that replaces unreadable bytes is known afterwards, so it is
    never taken for a torn write; a disk that cannot read more than `UNREADABLE_BYTES_MAX` has
    failed.
    """

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._unreadable: dict[str, dict[int, None]] = {}
        """Offsets of the unreadable blocks, by file."""

    async def open(self, name: str) -> ReadableFile:
        """Open a file to read it. Raises DiskFailedError, DescriptorsExhaustedError."""
        file = await self._disk.open(name)
        return _StartFile(file, self, self._unreadable.setdefault(name, {}))

    def overlap(self, name: str, start: int, end: int) -> bool:
        """Return whether bytes between two offsets could not be read."""
        blocks = self._unreadable.get(name, ())
        return any(block < end and block + BLOCK_BYTES > start for block in blocks)

    def note_unreadable(self, blocks: dict[int, None], block: int, error: UnreadableError) -> None:
        """Record an unreadable block. Raises `error` when there are too many."""
        blocks[block] = None
        if sum(map(len, self._unreadable.values())) * BLOCK_BYTES > UNREADABLE_BYTES_MAX:
            raise error


class _StartFile:
    """See `StartFiles`."""

    def __init__(self, file: File, files: StartFiles, unreadable: dict[int, None]) -> None:
        self._file = file
        self._files = files
        self._unreadable = unreadable

    @property
    def size(self) -> int:
        """See `File.size`."""
        return self._file.size

    async def read(self, offset: int, size: int) -> Buffer:
        """See `File.read`. Bytes that cannot be read are zeros, a block at a time."""
        try:
            return await self._file.read(offset, size)
        except UnreadableError:
            return await self._read_blocks(offset, min(offset + size, self._file.size))

    async def close(self) -> None:
        """See `File.close`."""
        await self._file.close()

    async def _read_blocks(self, offset: int, end: int) -> bytes:
        parts: list[Buffer] = []
        while offset < end:
            block = offset - offset % BLOCK_BYTES
            wanted = min(end, block + BLOCK_BYTES) - offset
            parts.append(await self._read_block(block, offset, wanted))
            offset += wanted
        return b"".join(parts)

    async def _read_block(self, block: int, offset: int, wanted: int) -> Buffer:
        if block not in self._unreadable:
            try:
                return await self._file.read(offset, wanted)
            except UnreadableError as error:
                self._files.note_unreadable(self._unreadable, block, error)
        return bytes(wanted)
