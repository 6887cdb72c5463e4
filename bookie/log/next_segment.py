"""Creation of the log's next segment file before the log needs it.

Leaves the time of the roll, and all writes to the file, to `bookie.log.log`.

Invariants: a file is returned only after its name is durable; at most one file is created ahead,
and no other segment has its number; a file without a head holds nothing, so a start removes a file
that a crash left.
Source: storage design, "One log" and "Threads".
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from bookie.config import StorageConfig
from bookie.errors import DescriptorsExhaustedError, DiskFullError
from bookie.files.disk import Disk, File
from bookie.log.segments import DIRECTORY, Segment, Segments

BEGIN_AT_SHARE: Final = 0.75
"""The next file is created once the active segment is this full. The rest of the segment takes
longer to fill than a file takes to create. Earlier creation would use space that cleaning may need.
"""


@dataclass(frozen=True, slots=True)
class EmptySegment:
    """A new segment and its open file, which has no records yet."""

    segment: Segment
    file: File


class NextSegment:
    """Next segment of one log."""

    def __init__(self, disk: Disk, config: StorageConfig, segments: Segments) -> None:
        self._disk = disk
        self._config = config
        self._segments = segments
        self._ahead: asyncio.Task[EmptySegment | None] | None = None

    def begin(self) -> None:
        """Start to create the file, unless that has happened since the last `take`."""
        if self._ahead is None:
            self._ahead = asyncio.create_task(self._create_ahead())

    async def take(self) -> EmptySegment:
        """Return the next segment; create it now if it was not created ahead. Raises DiskFullError,
        DescriptorsExhaustedError, DiskFailedError.
        """
        ahead, self._ahead = self._ahead, None
        created = None if ahead is None else await ahead
        return created or await self._create()

    async def remove(self, empty: EmptySegment) -> None:
        """Remove an empty file; its number is not used again before a restart."""
        await self._disk.unlink(empty.segment.name)
        await empty.file.close()

    async def discard(self) -> None:
        """Remove the file that was created ahead, because the log ends."""
        ahead, self._ahead = self._ahead, None
        created = None if ahead is None else await ahead
        if created is not None:
            await self.remove(created)

    async def _create_ahead(self) -> EmptySegment | None:
        try:
            return await self._create()
        except (DiskFullError, DescriptorsExhaustedError):
            return None  # the roll tries again and reports the error

    async def _create(self) -> EmptySegment:
        segment = Segment(self._segments.take_number(), is_cleaned=False, size=0)
        size = self._config.segment_bytes_max
        try:
            file = await self._disk.create(segment.name, preallocate_bytes=size)
        except DiskFullError:
            file = await self._disk.create(segment.name)
        # Before the head is written: from then on a checkpoint may name the place after it.
        await self._disk.sync_directory(DIRECTORY)
        return EmptySegment(segment, file)
