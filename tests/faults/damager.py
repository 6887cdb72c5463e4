"""Damage to old segments of a storage that works, and fences while a checkpoint stores it.

Leaves the other work to `storage_writer`, which runs this beside it.

Invariant: only segments below the mark are damaged: a start does not replay them, so the damage
costs entries, and no fence.
"""

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Final

from bookie.files import disk_calls
from bookie.log import records
from bookie.log.segments import Segment
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.faults.promises import Word, batch_of
from tests.support.bookie.storage_fixture import KEY, add

FIRST_ID: Final = 1 << 40
"""Ids of this module's ledgers are above those of the writers."""
LEDGERS: Final = 50
"""Least number of ledgers that wait for their fences before a segment is damaged."""
ROT: Final = b"rot"
ROT_EVERY_BYTES: Final = 1_000
KILL_SHARE: Final = 0.8
"""Share of the checkpoints of damage after which the process ends at once."""
FENCE_EVERY_S: Final = 0.002
PAUSE_S: Final = 0.05

Tell = Callable[[Word, int, int, int], None]


class Damager:
    """Damages one segment after the other."""

    def __init__(self, storage: BookieStorage, directory: Path, rng: Random, tell: Tell) -> None:
        """`tell` reports a promise, as `storage_writer.tell` does."""
        self._storage = storage
        self._directory = directory
        self._rng = rng
        self._tell = tell
        self._fences: dict[asyncio.Task[None], None] = {}
        self._unfenced: list[LedgerId] = []

    async def run(self) -> None:
        """Damage until the storage fails or this task is cancelled."""
        while True:
            if len(self._unfenced) < LEDGERS:
                await self._make_ledgers()
            segment = self._find_sound()
            if segment is None:
                await asyncio.sleep(PAUSE_S)
            else:
                await self._damage_one(segment)

    async def _damage_one(self, segment: Segment) -> None:
        """Damage a segment, and fence ledgers until a checkpoint has stored that."""
        index = self._storage._index
        self._damage(segment)
        await self._fence_until(lambda: segment.is_damaged or self._is_gone(segment))
        if self._is_gone(segment):  # it was cleaned before the damage
            return
        number, mark = segment.number, index.meta.mark_lsn
        await self._fence_until(
            lambda: number in index._stored_damaged and index.meta.mark_lsn > mark
        )
        self._tell(Word.DAMAGED, 0, 0, 0)
        if self._rng.random() < KILL_SHARE:
            os.kill(os.getpid(), signal.SIGKILL)

    async def _make_ledgers(self) -> None:
        first = FIRST_ID + self._rng.getrandbits(48)
        made = [LedgerId(first + number) for number in range(LEDGERS)]
        await asyncio.gather(*map(self._make, made))
        self._unfenced += made

    async def _make(self, ledger_id: LedgerId) -> None:
        self._tell(Word.ADDING, ledger_id, 0, 0)
        if await add(self._storage, batch_of(ledger_id, 0, 1), recovery=True) is Status.OK:
            self._tell(Word.ADDED, ledger_id, 0, 0)

    def _find_sound(self) -> Segment | None:
        mark_segment = records.segment_of(self._storage._index.meta.mark_lsn)
        segments = self._storage._segments.by_number.values()
        sound = [s for s in segments if s.number < mark_segment and not s.is_damaged and s.size]
        return self._rng.choice(sound) if sound else None

    def _is_gone(self, segment: Segment) -> bool:
        return segment.number not in self._storage._segments.by_number

    def _damage(self, segment: Segment) -> None:
        """Overwrite parts of a segment, and the end of its footer, durably."""
        places = range(self._rng.randrange(ROT_EVERY_BYTES), segment.size, ROT_EVERY_BYTES)
        with disk_calls.translated(segment.name):  # the power may be off
            descriptor = os.open(self._directory / segment.name, os.O_WRONLY)
            for place in (*places, segment.size):
                os.pwrite(descriptor, ROT, max(0, place - len(ROT)))
            os.fsync(descriptor)
            os.close(descriptor)

    async def _fence_until(self, is_done: Callable[[], bool]) -> None:
        """Fence one ledger after the other, without waiting for answers, until something is true;
        the storage cleans and makes checkpoints meanwhile.
        """
        while not is_done():
            if self._unfenced:
                task = asyncio.ensure_future(self._fence(self._unfenced.pop()))
                self._fences[task] = None
                task.add_done_callback(self._fences.pop)
            await asyncio.sleep(FENCE_EVERY_S)

    async def _fence(self, ledger_id: LedgerId) -> None:
        self._tell(Word.FENCING, ledger_id, 0, 0)
        if (await self._storage.fence(ledger_id, KEY)).status is Status.OK:
            self._tell(Word.FENCED, ledger_id, 0, 0)
