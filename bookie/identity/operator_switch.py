"""Read-only mode requested by an operator, which survives a restart.

Leaves the effect on adds to `bookie.storage.writability`, and the route to `bookie.server.admin`.

Format: the file `identity/read-only` exists while the bookie must be read-only; its text is for
operators.
Invariant: the mark is durably written or removed before the switch takes effect and is answered.
"""

import asyncio
from typing import Final

from bookie.files.disk import Disk
from bookie.files.small_files import read_mark, remove_mark, write_mark
from bookie.storage.writability import Writability

READ_ONLY_NAME: Final = "read-only"
_TEXT: Final = b"An operator made this bookie read-only: quire bookie readonly ID off\n"


class OperatorSwitch:
    """Read-only switch of one bookie."""

    def __init__(self, disk: Disk, writability: Writability) -> None:
        self._disk = disk
        self._writability = writability
        self._switching = asyncio.Lock()

    async def restore(self) -> None:
        """Make the storage read-only if the mark exists. Call it once, at a start."""
        if await read_mark(self._disk, READ_ONLY_NAME) is not None:
            self._writability.set_by_operator(is_read_only=True)

    async def switch(self, *, is_read_only: bool) -> None:
        """Store the mode durably, then apply it. Raises DiskFullError, DiskFailedError: then
        nothing has changed.
        """
        async with self._switching:
            if is_read_only:
                await write_mark(self._disk, READ_ONLY_NAME, _TEXT)
            else:
                await remove_mark(self._disk, READ_ONLY_NAME)
            self._writability.set_by_operator(is_read_only=is_read_only)
