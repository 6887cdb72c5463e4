"""A storage on the simulated disk, for the tests of `bookie.storage.bookie_storage`."""

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import TypeVar

from bookie.config import KIB, StorageConfig
from bookie.storage.answers import ReadResult
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.horizon import LedgerStatusReader
from bookie.wire.batch import BatchView
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.loop import run_simulation

Result = TypeVar("Result")
KEY = b"k" * 32
OTHER_KEY = b"o" * 32

SMALL = StorageConfig(
    segment_bytes_max=4 * KIB,
    checkpoint_log_bytes=16 * KIB,
    transaction_runs_max=3,
    index_map_bytes=KIB,
    run_bytes_max=KIB,
    recent_bytes_max=2 * KIB,
    reserve_bytes_min=KIB,
    reserve_share=0.0,
    clean_mean_run_bytes_min=0,
)


class Bench:
    """One platter, and one storage on it at a time."""

    def __init__(
        self,
        seed: int = 1,
        config: StorageConfig = SMALL,
        read_standing: LedgerStatusReader | None = None,
    ) -> None:
        self.rng = random.Random(f"bench {seed}")
        self.platter = Platter()
        self.faults = DiskFaults()
        self.config = config
        self._read_standing = read_standing

    async def open(self) -> BookieStorage:
        disk = CrashableDisk(self.platter, self.rng, self.faults)
        return await BookieStorage.open(
            disk, self.config, rng=self.rng, read_standing=self._read_standing
        )

    async def reopen(self, storage: BookieStorage) -> BookieStorage:
        await storage.close()
        return await self.open()


def simulate(test: Callable[[Bench], Coroutine[None, None, Result]], seed: int = 1) -> Result:
    """Run a test on a new bench."""
    return run_simulation(lambda: test(Bench(seed)), seed)


async def add(
    storage: BookieStorage,
    batch: BatchView,
    *,
    recovery: bool = False,
    key: bytes | None = KEY,
) -> Status:
    """Add a batch and wait for the answer."""
    answer: asyncio.Future[Status] = asyncio.get_running_loop().create_future()
    storage.add(batch, recovery=recovery, master_key=key, done=answer.set_result)
    return await answer


async def read(
    storage: BookieStorage,
    ledger_id: int,
    first: int,
    last: int,
    *,
    bytes_max: int = 1 << 20,
    key: bytes | None = KEY,
    after_fence: bool = False,
) -> ReadResult:
    """Read a range."""
    return await storage.reads.read(
        LedgerId(ledger_id), EntryId(first), EntryId(last), bytes_max, key, after_fence=after_fence
    )


def entries_of(result: ReadResult) -> dict[int, bytes]:
    """Return the entries of an answer by id, each batch checked."""
    entries: dict[int, bytes] = {}
    for buffer in result.batches:
        batch = BatchView(buffer)
        batch.verify_crc()
        for place, payload in enumerate(batch.payload_views()):
            entry_id = batch.header.first_entry_id + place
            assert entry_id not in entries
            entries[entry_id] = bytes(payload)
    return entries
