"""Interfaces of a disk, the bookie's only access to files, and of the index's ordered key-value
store on it; and small files, which are read and replaced as one unit.

Leaves the real disk, with its threads, to `bookie.files.disk_real`, the real store to
`bookie.files.index_lmdb`, the disk that can crash and the store that can lose commits to the
simulation, and the meaning of keys to `bookie.index.index_pages`.

Invariants: bytes are durable after `commit` has returned, and not before; a name is durable after
`sync_directory`. A transaction of the store is applied completely or not at all, and is durable
when `update` has returned. After a crash a small file has its old content or its new content.
Source: storage design, "Index" and "Threads"; reliability design, D7-D14.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol, TypeVar

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


Result = TypeVar("Result")


class StoreSizes(NamedTuple):
    """Sizes of a store, in bytes."""

    used_bytes: int
    """Bytes of pages in use or free for reuse: the file is at least this long."""
    map_bytes: int
    """Bytes that the store may grow to before it makes its map larger."""
    reusable_bytes: int = 0
    """Approximate part of `used_bytes` in pages that hold nothing any more."""
    pair_count: int = 0
    """Number of pairs, as the store itself counts them."""


class StoreTransaction(Protocol):
    """A consistent view of the store; keys and values are bytes, keys ordered as bytes."""

    def get(self, key: bytes) -> bytes | None:
        """Return the value of a key, None without one."""

    def put(self, key: bytes, value: bytes) -> None:
        """Store a value. Raises DiskFullError."""

    def delete(self, key: bytes) -> None:
        """Remove a key, if it exists."""

    def seek(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the first pair at or after `key`."""

    def before(self, key: bytes) -> tuple[bytes, bytes] | None:
        """Return the last pair before `key`."""

    def scan(self, start: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return at most `limit` pairs from `start` on, in order."""

    def scan_keys(self, start: bytes, limit: int) -> list[bytes]:
        """Return the keys that `scan` returns."""


class OrderedStore(Protocol):
    """A store with one writer at a time. Updates run one after another, in the order of the calls,
    and so do views. A view may run during an update.
    """

    async def view(self, job: Callable[[StoreTransaction], Result]) -> Result:
        """Run a job that only reads. It sees one state of the store: every update that was
        acknowledged before the call, and possibly later updates, each completely or not at all.
        """

    async def update(
        self, job: Callable[[StoreTransaction], Result], *, keeps_room: bool = False
    ) -> Result:
        """Run a job and commit it durably. `keeps_room`: the job can wait, so it does not use the
        last space of a disk that only the store fills; deletions need that space.

        Raises DiskFullError (nothing was applied), DiskFailedError (the commit did not sync: the
        bookie stops).
        """

    def sizes(self) -> StoreSizes:
        """Return how many bytes the store uses and may use. Never waits."""

    def growth_bytes(self, changes: int) -> int:
        """Return how many bytes the store's files may grow by when `changes` pairs change."""

    async def close(self) -> None:
        """Release the store."""


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


SMALL_BYTES_MAX: Final = 4_096
MARKS: Final = "identity"
"""The directory of the marks."""
_TEMPORARY_SUFFIX: Final = ".new"


async def read_small(disk: Disk, directory: str, name: str) -> bytes | None:
    """Return the content of a small file; None if the file does not exist."""
    if name not in await disk.list_names(directory):
        return None
    file = await disk.open(f"{directory}/{name}")
    try:
        return bytes(await file.read(0, SMALL_BYTES_MAX))
    finally:
        await file.close()


async def write_small(disk: Disk, directory: str, name: str, data: bytes) -> None:
    """Replace a small file, durably and atomically."""
    path = f"{directory}/{name}"
    temporary = path + _TEMPORARY_SUFFIX
    if name + _TEMPORARY_SUFFIX in await disk.list_names(directory):
        await disk.unlink(temporary)
    file = await disk.create(temporary)
    try:
        await file.commit(0, [data])
    finally:
        await file.close()
    await disk.rename(temporary, path)
    await disk.sync_directory(directory)


async def read_mark(disk: Disk, name: str) -> bytes | None:
    """Return the content of a mark; None if the mark does not exist."""
    return await read_small(disk, MARKS, name)


async def write_mark(disk: Disk, name: str, data: bytes) -> None:
    """Replace a mark, durably and atomically."""
    await write_small(disk, MARKS, name, data)


async def remove_mark(disk: Disk, name: str) -> None:
    """Remove a mark, durably, if it exists."""
    if name in await disk.list_names(MARKS):
        await disk.unlink(f"{MARKS}/{name}")
        await disk.sync_directory(MARKS)
