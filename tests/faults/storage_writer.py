"""Process that works on one storage in a real directory, and reports the promises it receives.

    python -m tests.faults.storage_writer DIRECTORY --seed N [--seconds S] [--close] [--damage]

The environment variable QUIRE_FAULTS_CRASH names the place where it ends by SIGKILL (see
`crash_points`), QUIRE_FAULTS_WITHOUT the syncs that it leaves out (see `left_out_syncs`). Leaves
the meaning of the lines, and judging, to `promises`.

Invariant: every line is written before the process continues.
"""

import argparse
import asyncio
import contextlib
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from bookie.errors import BookieError, StorageClosedError
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId
from tests.faults import crash_points, left_out_syncs
from tests.faults.damager import Damager
from tests.faults.promises import Word, batch_of, open_storage
from tests.support.bookie.storage_fixture import KEY

SLOTS: Final = 5
"""Number of ledgers that are written at a time."""
BATCH_ENTRIES_MAX: Final = 6
OUTPUT: Final = 1


def tell(word: Word, ledger_id: int = 0, low: int = 0, high: int = 0) -> None:
    """Write one complete line."""
    os.write(OUTPUT, f"{word.value} {ledger_id} {low} {high}\n".encode())


class SlotWriter:
    """Writes one ledger after the other."""

    def __init__(self, storage: BookieStorage, slot: int, rng: Random) -> None:
        self._storage = storage
        self._rng = rng
        self._ledger_id = slot
        self._next = 0

    async def run(self) -> None:
        """Write until the storage fails or this task is cancelled."""
        await self._repeat_fences()
        await self._find_ledger()
        await self._repeat_adds()
        while self._storage.is_writable:
            draw = self._rng.random()
            if draw < 0.82:
                await self._add(recovery=self._rng.random() < 0.1)
            elif draw < 0.90:
                await self._report_lac()
            elif draw < 0.93:
                await self._fence()
            elif draw < 0.95:
                await self._delete()
            elif draw < 0.98:
                await self._storage.checkpoint()
            else:
                await self._storage.clean()
            await asyncio.sleep(0)

    async def _find_ledger(self) -> None:
        """Continue with the slot's latest ledger, unless it is fenced or deleted."""
        while True:
            snapshot = await self._storage.reads.read_lac(LedgerId(self._ledger_id), KEY)
            if snapshot.status is Status.NO_SUCH_LEDGER:
                self._next = 0
                return
            if snapshot.status is Status.OK and not snapshot.fenced:
                self._next = snapshot.highest_entry_id + 1
                return
            if snapshot.status not in (Status.OK, Status.DELETED):
                raise RuntimeError(f"ledger {self._ledger_id} is {snapshot.status.name}")
            self._ledger_id += SLOTS

    async def _repeat_fences(self) -> None:
        """Repeat fences whose answer an earlier process may not have received, as clients do."""
        ledger_id = self._ledger_id
        while True:
            snapshot = await self._storage.reads.read_lac(LedgerId(ledger_id), KEY)
            if snapshot.status is Status.OK and snapshot.fenced:
                tell(Word.FENCING, ledger_id)
                if (await self._storage.fence(LedgerId(ledger_id), KEY)).status is Status.OK:
                    tell(Word.FENCED, ledger_id)
            elif snapshot.status is not Status.DELETED:
                return
            ledger_id += SLOTS

    async def _repeat_adds(self) -> None:
        first = max(0, self._next - BATCH_ENTRIES_MAX)
        if first == self._next:
            return
        last = self._next - 1
        tell(Word.ADDING, self._ledger_id, first, last)
        if await self._store(first, self._next - first, recovery=True) is Status.OK:
            tell(Word.ADDED, self._ledger_id, first, last)

    async def _add(self, *, recovery: bool) -> None:
        count = self._rng.randrange(1, BATCH_ENTRIES_MAX)
        first = self._next
        if recovery:
            # entries that exist already are compared
            first = max(0, first - self._rng.randrange(3))
        last = first + count - 1
        tell(Word.ADDING, self._ledger_id, first, last)
        status = await self._store(first, count, recovery=recovery)
        if status is Status.OK:
            tell(Word.ADDED, self._ledger_id, first, last)
            self._next = max(self._next, last + 1)
        elif status is Status.UNKNOWN:
            raise StorageClosedError

    async def _store(self, first: int, count: int, *, recovery: bool) -> Status:
        answer: asyncio.Future[Status] = asyncio.get_running_loop().create_future()

        def done(status: Status) -> None:
            if not answer.done():  # the waiting tasks were cancelled: this process ends
                answer.set_result(status)

        batch = batch_of(self._ledger_id, first, count)
        self._storage.add(batch, recovery=recovery, master_key=KEY, done=done)
        return await answer

    async def _report_lac(self) -> None:
        lac = self._next - 1
        tell(Word.TELLING, self._ledger_id, lac)
        snapshot = await self._storage.write_lac(LedgerId(self._ledger_id), EntryId(lac), KEY)
        if snapshot.status is Status.OK:
            tell(Word.TOLD, self._ledger_id, lac)

    async def _fence(self) -> None:
        tell(Word.FENCING, self._ledger_id)
        snapshot = await self._storage.fence(LedgerId(self._ledger_id), KEY)
        if snapshot.status is Status.OK:
            tell(Word.FENCED, self._ledger_id)
        await self._add(recovery=True)
        await self._find_ledger()

    async def _delete(self) -> None:
        tell(Word.DELETING, self._ledger_id)
        if await self._storage.delete_ledger(LedgerId(self._ledger_id)) is Status.OK:
            tell(Word.DELETED, self._ledger_id)
        await self._find_ledger()


async def write(
    directory: Path, seed: str, seconds: float, *, close: bool, damage: bool = False
) -> None:
    """Work on the storage until the process ends, or for this time. `damage`: also damage old
    segments, see `damager`.
    """
    rng = Random(seed)
    storage = await open_storage(directory)
    tell(Word.OPEN)
    works = [SlotWriter(storage, slot, Random(rng.random())).run() for slot in range(SLOTS)]
    if damage:
        works.append(Damager(storage, directory, Random(rng.random()), tell).run())
    tasks = [asyncio.ensure_future(work) for work in (storage.background(), *works)]
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await asyncio.gather(*tasks)
    for task in tasks:
        task.cancel()
    if close:
        await storage.close()


def main(words: Sequence[str] | None = None) -> None:
    """Run; if the storage reports its failure, end with status 0."""
    parser = argparse.ArgumentParser()
    parser.add_argument("directory", type=Path)
    parser.add_argument("--seed", required=True)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--close", action="store_true")
    parser.add_argument("--damage", action="store_true")
    given = parser.parse_args(words)
    crash_points.install(os.environ.get(crash_points.VARIABLE, ""))
    left_out_syncs.install(os.environ.get(left_out_syncs.VARIABLE, ""))
    try:
        close, damage = given.close, given.damage
        asyncio.run(write(given.directory, given.seed, given.seconds, close=close, damage=damage))
    except BookieError as error:
        sys.stderr.write(f"{error}\n")


if __name__ == "__main__":
    main()
