"""Anchors: one file in each of a bookie's directories. The file's identity reveals a copy, and its
absence that a directory is gone.

Leaves the definition of a file's identity to `bookie.files.disk_calls`, the consequences of a copy
to `bookie.identity.identity`, and ending the bookie to `bookie.bookie_process`.

Format: `anchor` in each directory holds one line of text, "quire-anchor 1"; its content is not
read.

Invariant: an anchor is made when the bookie is formatted, and is never written again. A start makes
one that is missing.

Source: protocol rules 2.6 and 2.9.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from bookie.errors import DirectoryLostError
from bookie.files.disk import Disk, write_small
from bookie.files.disk_calls import is_same_file
from bookie.identity.cookie import DIRECTORIES

ANCHOR_NAME: Final = "anchor"
_CONTENT: Final = b"quire-anchor 1\n"
_MISSING: Final = ""
CHECK_INTERVAL_S: Final = 5.0


async def read_anchors(disk: Disk) -> tuple[str, ...]:
    """Return the identity of each directory's anchor; an empty text for a missing one."""
    return tuple([await _identity_in(disk, directory) for directory in DIRECTORIES])


async def make_anchors(disk: Disk) -> tuple[str, ...]:
    """Create the missing anchors, durably; return the identity of each."""
    for directory in DIRECTORIES:
        if ANCHOR_NAME not in await disk.list_names(directory):
            await write_small(disk, directory, ANCHOR_NAME, _CONTENT)
    return await read_anchors(disk)


def are_same_files(one: Sequence[str], other: Sequence[str]) -> bool:
    """Return whether two lists of identities are of the same files."""
    return len(one) == len(other) and all(
        _MISSING not in (a, b) and is_same_file(a, b) for a, b in zip(one, other, strict=True)
    )


async def _identity_in(disk: Disk, directory: str) -> str:
    try:
        return await disk.file_identity(f"{directory}/{ANCHOR_NAME}")
    except FileNotFoundError:
        return _MISSING


class AnchorWatch:
    """Watch of a running bookie's anchors: its directories may be removed, replaced or unmounted.

    Invariant: at most CHECK_INTERVAL_S after an anchor is gone, and the time of one check, the
    bookie answers nothing any more. Without the watch it would serve from files that have no name,
    which are gone when it ends, and confirm entries in them.
    """

    def __init__(
        self, disk: Disk, files: Sequence[str], on_lost: Callable[[DirectoryLostError], None]
    ) -> None:
        """`files` are the anchors' identities at the start. `on_lost` is called once."""
        self._disk = disk
        self._files = files
        self._on_lost = on_lost

    async def run(self) -> None:
        """Check until an anchor is gone. Raises DiskFailedError."""
        while True:
            found = await read_anchors(self._disk)
            if not are_same_files(self._files, found):
                self._on_lost(DirectoryLostError(self._changed(found)))
                return
            await asyncio.sleep(CHECK_INTERVAL_S)

    def _changed(self, found: Sequence[str]) -> list[str]:
        pairs = zip(DIRECTORIES, self._files, found, strict=True)
        return [name for name, one, other in pairs if not are_same_files([one], [other])]
