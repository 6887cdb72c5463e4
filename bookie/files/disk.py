"""States what the bookie asks of a disk; the only door to files.

Leaves the real one, with its threads, to `bookie.files.disk_real`, and the crashable one to the
simulation.

Invariants: bytes are durable when `commit` has returned, and not before; a name is durable after
`sync_directory`.
Source: storage design, "Threads"; reliability D7-D14.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bookie.files.index_store import OrderedStore

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Bytes of the file system that holds a directory."""

    total_bytes: int
    free_bytes: int
    device: int = 0
    """The same for two directories when they share a file system."""


class File(Protocol):
    """One open file. Commits are made one at a time, by one caller."""

    @property
    def name(self) -> str:
        """The name within its directory."""

    @property
    def size(self) -> int:
        """Bytes in the file, preallocated ones included."""

    async def commit(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write the buffers one behind the other at `offset` and make them survive power loss.

        Raises DiskFullError (call `truncate` before anything else), SyncFullError (the file must
        not be written or synced afterwards), or DiskFailedError once the device refuses: nothing on
        it must be used afterwards.
        """

    def read_nowait(self, offset: int, size: int) -> Buffer | None:
        """Return bytes that are in memory already, None when the device would have to be asked.
        Short at the end.
        """

    async def read(self, offset: int, size: int) -> Buffer:
        """Return `size` bytes at `offset`, fewer at the end of the file. Raises DiskFailedError."""

    async def truncate(self, size: int) -> None:
        """Cut the file, durably. Raises DiskFailedError, or SyncFullError as `commit`."""

    def drop_cached(self, offset: int, size: int) -> None:
        """Tell the system that these bytes, which are synced, will not be read soon."""

    async def close(self) -> None:
        """Release the file; reads that are under way end first."""


class Disk(Protocol):
    """One directory tree of files; names are relative and may hold one slash."""

    async def lock(self) -> None:
        """Take the directory for this process; what is held is kept. Raises
        DirectoryLockedError.
        """

    async def create(
        self, name: str, *, preallocate_bytes: int = 0, background: bool = False
    ) -> File:
        """Make a new file, which must not exist; missing directories are made. The commits of a
        background file never delay those of other files by waiting in one queue with them. Raises
        DiskFullError, DiskFailedError.
        """

    async def open(self, name: str) -> File:
        """Open an existing file for reading and truncation. Raises FileNotFoundError,
        DescriptorsExhaustedError.
        """

    async def list_names(self, directory: str) -> list[str]:
        """Return the names of a directory's files, sorted; of one that does not exist, none."""

    async def rename(self, old: str, new: str) -> None:
        """Give a file another name, replacing what had it; durable after `sync_directory`."""

    async def unlink(self, name: str) -> None:
        """Remove a name; durable after `sync_directory`."""

    async def sync_directory(self, directory: str) -> None:
        """Make the names of a directory survive power loss. Raises DiskFailedError."""

    async def file_identity(self, name: str) -> str:
        """Return what identifies a file: a copy of it, made file by file, has another identity.

        Raises FileNotFoundError, DiskFailedError.
        """

    async def lock_identity(self) -> str:
        """Return what identifies the lock that is held: equal identities mean the same lock on the
        same running system. Empty when the system cannot tell.
        """

    async def space(self, directory: str = "") -> DiskSpace:
        """Return the room on the file system of a directory; while that is missing, of the root."""

    async def open_index(self, name: str, map_bytes: int) -> OrderedStore:
        """Open, or make, the ordered key-value store that holds the index."""

    async def close(self) -> None:
        """Release the lock and end every thread."""
