"""Interface of a disk; the bookie's only access to files.

Leaves the real disk, with its threads, to `bookie.files.disk_real`, and the disk that can crash to
the simulation.

Invariants: bytes are durable after `commit` has returned, and not before; a name is durable after
`sync_directory`.
Source: storage design, "Threads"; reliability design, D7-D14.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from bookie.files.index_store import OrderedStore

Buffer = bytes | bytearray | memoryview


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Sizes, in bytes, of the file system that holds a directory."""

    total_bytes: int
    free_bytes: int
    device: int = 0
    """Device number: equal for two directories that share a file system."""


class File(Protocol):
    """One open file. One caller commits to it, one commit at a time."""

    @property
    def name(self) -> str:
        """The name within its directory."""

    @property
    def size(self) -> int:
        """Bytes in the file, including preallocated bytes."""

    async def commit(self, offset: int, buffers: Sequence[Buffer]) -> None:
        """Write the buffers one after another at `offset` and make them survive power loss.

        Raises DiskFullError (call `truncate` before any other call), SyncFullError (the file must
        not be written or synced again), or DiskFailedError when the device reports an error (no
        file on it may be used again).
        """

    def read_nowait(self, offset: int, size: int) -> Buffer | None:
        """Return bytes that are already in memory; None when the device would have to be read.
        Returns fewer bytes at the end of the file.
        """

    async def read(self, offset: int, size: int) -> Buffer:
        """Return `size` bytes at `offset`, fewer at the end of the file. Raises UnreadableError,
        DiskFailedError.
        """

    async def truncate(self, size: int) -> None:
        """Cut the file, durably. Raises DiskFailedError, or SyncFullError as `commit`."""

    def drop_cached(self, offset: int, size: int) -> None:
        """Advise the system that these bytes, which are synced, will not be read soon."""

    async def close(self) -> None:
        """Release the file after the running reads, and a cancelled commit, have ended."""


class Disk(Protocol):
    """One directory tree of files; names are relative and may hold one slash."""

    async def lock(self) -> None:
        """Lock the directory for this process; do nothing if this process holds the lock. Raises
        DirectoryLockedError.
        """

    async def create(
        self, name: str, *, preallocate_bytes: int = 0, background: bool = False
    ) -> File:
        """Create a file, which must not exist, and missing directories. The commits of a background
        file have a separate queue, so that they do not delay the commits of other files. Raises
        DiskFullError, DiskFailedError.
        """

    async def open(self, name: str) -> File:
        """Open an existing file for reading and truncation. Raises FileNotFoundError,
        DescriptorsExhaustedError.
        """

    async def list_names(self, directory: str) -> list[str]:
        """Return the sorted names of a directory's files; an empty list if it does not exist."""

    async def rename(self, old: str, new: str) -> None:
        """Rename a file, replacing any file of that name; durable after `sync_directory`."""

    async def unlink(self, name: str) -> None:
        """Remove a name; durable after `sync_directory`."""

    async def sync_directory(self, directory: str) -> None:
        """Make the names of a directory survive power loss. Raises DiskFailedError."""

    async def file_identity(self, name: str) -> str:
        """Return the identity of a file. A copy of the file has another identity.

        Raises FileNotFoundError, DiskFailedError.
        """

    async def lock_identity(self) -> str:
        """Return the identity of the held lock: equal identities mean the same lock on the same
        running system. Empty when the system has none.
        """

    async def space(self, directory: str = "") -> DiskSpace:
        """Return the space on a directory's file system; of the root's if the directory is
        missing.
        """

    async def open_index(self, name: str, map_bytes: int) -> OrderedStore:
        """Open or create the ordered key-value store of the index. Raises IndexFileError,
        DiskFullError, DiskFailedError.
        """

    async def close(self) -> None:
        """Release the lock and end every thread."""
