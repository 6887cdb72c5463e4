"""Keeps a file of written bytes that is given up when the disk is nearly full.

Leaves when to give it up to `bookie.upkeep`.

Invariants: the file is written, not sparse; it is only made where that leaves the disk below its
low mark.
Source: storage design, "Limits and refusals".
"""

import asyncio
from typing import Final

from bookie.config import StorageConfig
from bookie.disk import Disk
from bookie.errors import DiskFullError

DIRECTORY: Final = "reserve"
NAME: Final = "reserve/zeros"
PIECE_BYTES: Final = 4 * 1024 * 1024


class Reserve:
    """The reserve of one storage."""

    def __init__(self, disk: Disk, config: StorageConfig) -> None:
        self._disk = disk
        self._config = config
        self._is_given_up = False
        self._wanted = asyncio.Event()
        self._wanted.set()
        self._changing = asyncio.Lock()

    def want(self) -> None:
        """Have the file made, if it is not there, by `keep`."""
        self._is_given_up = False
        self._wanted.set()

    async def give_up(self) -> None:
        """Free the room of the file."""
        self._is_given_up = True
        async with self._changing:
            await self._remove()

    async def keep(self) -> None:
        """Make the file whenever it is wanted, until cancelled."""
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            async with self._changing:
                await self._make()

    async def _remove(self) -> None:
        if await self._disk.list_names(DIRECTORY):
            await self._disk.unlink(NAME)
            await self._disk.sync_directory(DIRECTORY)

    async def _make(self) -> None:
        config, space = self._config, await self._disk.space()
        size = max(config.reserve_bytes_min, int(space.total_bytes * config.reserve_share))
        room = space.free_bytes - (1.0 - config.disk_low_mark) * space.total_bytes
        if await self._disk.list_names(DIRECTORY):
            file = await self._disk.open(NAME)
            is_whole = file.size >= size
            await file.close()
            if is_whole:
                return
            await self._disk.unlink(NAME)
        if room < size or self._is_given_up:
            return
        try:
            file = await self._disk.create(NAME)
        except DiskFullError:  # no room for a name
            self._is_given_up = True
            return
        try:
            for offset in range(0, size, PIECE_BYTES):
                if self._is_given_up:
                    break
                piece = bytes(min(PIECE_BYTES, size - offset))
                await file.commit(offset, [piece])
                file.drop_cached(offset, len(piece))
                await asyncio.sleep(len(piece) / config.clean_bytes_per_s)
        except DiskFullError:
            self._is_given_up = True
        await file.close()
        if self._is_given_up:
            await self._remove()
        else:
            await self._disk.sync_directory(DIRECTORY)
