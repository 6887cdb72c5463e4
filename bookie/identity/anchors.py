"""Anchors: one file in each of a bookie's directories. The file's identity reveals a copy.

Leaves the definition of a file's identity to `bookie.files.disk_identity`, and the consequences of
a copy to `bookie.identity.identity`.

Format: `anchor` in each directory holds one line of text, "quire-anchor 1"; its content is not
read.

Invariant: an anchor is made when the bookie is formatted, and is never written again. A start makes
one that is missing.

Source: protocol rule 2.6.
"""

from collections.abc import Sequence
from typing import Final

from bookie.files.disk import Disk
from bookie.files.disk_identity import is_same_file
from bookie.files.small_files import write_small
from bookie.identity.cookie import DIRECTORIES

ANCHOR_NAME: Final = "anchor"
_CONTENT: Final = b"quire-anchor 1\n"
_MISSING: Final = ""


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
