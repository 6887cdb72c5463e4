"""Watch of a running bookie's anchors: its directories may be removed, replaced or unmounted.

Leaves the anchors to `bookie.identity.anchors`, and ending the bookie to `bookie.bookie_process`.

Invariant: at most CHECK_INTERVAL_S after an anchor is gone, and the time of one check, the bookie
answers nothing any more. Without the watch it would serve from files that have no name, which are
gone when it ends, and confirm entries in them.

Source: protocol rule 2.6.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from bookie.files.disk import Disk
from bookie.identity.anchors import are_same_files, read_anchors
from bookie.identity.cookie import DIRECTORIES
from bookie.server_errors import DirectoryLostError

CHECK_INTERVAL_S: Final = 5.0


class AnchorWatch:
    """Periodic check that the directories are those of the start; `run` it as a task."""

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
