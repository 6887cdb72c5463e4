"""Small files of a bookie's directories, which are read and replaced as one unit, durably.

Leaves the files' content to the modules of `bookie.identity`.

Invariant: after a crash a small file has its old content or its new content.
"""

from typing import Final

from bookie.files.disk import Disk

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
