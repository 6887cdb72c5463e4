"""Read-only mode at an operator's wish, which survives a restart.

Leaves the effect on adds to `bookie.storage.writability`, and the route to `bookie.server.admin`.

Format: the file `identity/read-only` exists while the bookie is to be read-only; what it holds is
for people.
Invariant: the mark is durable, or durably removed, before the switch takes effect and is answered.
"""

import asyncio
from typing import Final

from bookie.files.disk import Disk
from bookie.files.small_files import read_mark, remove_mark, write_mark
from bookie.storage.writability import Writability

READ_ONLY_NAME: Final = "read-only"
_TEXT: Final = b"An operator made this bookie read-only: quire bookie readonly ID off\n"


class OperatorSwitch:
    """The switch of one bookie."""

    def __init__(self, disk: Disk, writability: Writability) -> None:
        self._disk = disk
        self._writability = writability
        self._switching = asyncio.Lock()

    async def restore(self) -> None:
        """Make the storage read-only if the mark is there; called once, at a start."""
        if await read_mark(self._disk, READ_ONLY_NAME) is not None:
            self._writability.set_by_operator(is_read_only=True)

    async def switch(self, *, is_read_only: bool) -> None:
        """Store the wish durably, then obey it. Raises DiskFullError, DiskFailedError: nothing has
        changed then.
        """
        async with self._switching:
            if is_read_only:
                await write_mark(self._disk, READ_ONLY_NAME, _TEXT)
            else:
                await remove_mark(self._disk, READ_ONLY_NAME)
            self._writability.set_by_operator(is_read_only=is_read_only)
