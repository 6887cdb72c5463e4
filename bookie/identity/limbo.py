"""Stored reason of a bookie's limbo, which is shown while the limbo lasts.

Leaves entering limbo to `bookie.storage.opening`, and showing the reason to
`bookie.storage.writability`.

Format: the mark `identity/limbo-reason` holds one line of text, UTF-8. It is missing if it found no
room on a full disk, or if the start that found the loss was interrupted.

Source: protocol rules 2.4, 2.6.
"""

import contextlib
from typing import Final

from bookie.errors import DiskFullError
from bookie.files.disk import SMALL_BYTES_MAX, Disk, read_mark, remove_mark, write_mark
from bookie.storage.bookie_storage import BookieStorage

REASON_NAME: Final = "limbo-reason"
UNKNOWN_REASON: Final = "an earlier start found a loss of data and could not store the reason"


async def keep_reason(disk: Disk, storage: BookieStorage) -> str:
    """Store the reason that this start found, durably. Return the reason of a storage in limbo,
    else an empty text.
    """
    if not storage.statistics().is_limbo:
        await remove_mark(disk, REASON_NAME)
        return ""
    if storage.limbo_reason:
        text = storage.limbo_reason.encode()[: SMALL_BYTES_MAX - 1]
        with contextlib.suppress(DiskFullError):
            await write_mark(disk, REASON_NAME, text + b"\n")
        return storage.limbo_reason
    kept = await read_mark(disk, REASON_NAME)
    return UNKNOWN_REASON if kept is None else kept.decode(errors="replace").strip()
