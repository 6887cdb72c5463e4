"""Files of the log as a start reads them: bytes that the disk cannot read are read as zeros.

Leaves the meaning of damage to `bookie.log.recovery_scan`.

Invariants: every block of zeros that replaces unreadable bytes is known afterwards, so it is never
taken for a torn write; a disk that cannot read more than `UNREADABLE_BYTES_MAX` has failed.
Source: protocol rule 2.4.
"""

from typing import Final, Protocol

from bookie.errors import UnreadableError
from bookie.files.disk import Buffer, Disk, File

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
    """Files that one start reads, and what it could not read of them."""

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
        return any(each < end and each + BLOCK_BYTES > start for each in blocks)

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
