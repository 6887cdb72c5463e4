"""A storage on a full disk, and its way back."""

import asyncio
import contextlib
import dataclasses
from collections.abc import AsyncIterator

import pytest

from bookie.config import GIB, MIB, StorageConfig
from bookie.errors import DiskFullError, DiskTooSmallError
from bookie.files.disk import DiskSpace
from bookie.log.reserve import check_room, make_room
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from quire.server.overriding import override
from tests.simulation.disk import CrashableDisk
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import KEY, SMALL, Bench, add, entries_of, read, simulate

CAPACITY = 1_000_000
FRAGMENTED = dataclasses.replace(
    SMALL, segment_bytes_max=20_000, checkpoint_log_bytes=30_000, reserve_bytes_min=1000
)


@contextlib.asynccontextmanager
async def serving(bench: Bench) -> AsyncIterator[BookieStorage]:
    storage = await bench.open()
    running = asyncio.create_task(storage.background())
    try:
        yield storage
        assert not running.done(), running.exception()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await storage.close()


async def fill(storage: BookieStorage, ledgers: tuple[int, ...]) -> int:
    """Add to each ledger in turn until an add is refused; return how many entries each has."""
    count = 0
    while True:
        for ledger_id in ledgers:
            if await add(storage, make_run(ledger_id, count, 1, size=400)) is not Status.OK:
                return count
        count += 1


@pytest.mark.parametrize(("high", "low"), [(0.80, 0.75), (1.0, 0.99)])
def test_a_full_fragmented_disk_is_cleaned_until_it_is_writable_again(
    high: float, low: float
) -> None:
    async def main(bench: Bench) -> None:
        bench.faults.capacity_bytes = CAPACITY
        bench.config = dataclasses.replace(FRAGMENTED, disk_high_mark=high, disk_low_mark=low)
        async with serving(bench) as storage:
            await asyncio.sleep(10)
            count = await fill(storage, (1, 2, 3))
            await asyncio.sleep(20)
            assert not storage.is_writable
            for ledger_id in (2, 3):
                assert await storage.delete_ledger(LedgerId(ledger_id)) is Status.OK
            await asyncio.sleep(60)
            assert storage.is_writable
            for first in range(0, count, 10):
                last = min(first + 9, count - 1)
                assert len(entries_of(await read(storage, 1, first, last))) == last - first + 1
            await asyncio.sleep(60)
            assert "log/reserve" in bench.platter.names
            statistics = storage.statistics()
            assert statistics.segment_bytes < statistics.live_bytes / 0.45

    simulate(main)


def test_an_operator_can_have_a_full_disk_cleaned() -> None:
    async def main(bench: Bench) -> None:
        bench.faults.capacity_bytes = CAPACITY
        bench.config = FRAGMENTED
        storage = await bench.open()
        count = await fill(storage, (1, 2, 3))
        bench.faults.capacity_bytes += 30_000  # as large as the reserve would be
        assert not storage.is_writable
        await storage.checkpoint()
        for ledger_id in (2, 3):
            assert await storage.delete_ledger(LedgerId(ledger_id)) is Status.OK
        before = storage.statistics().segment_bytes
        assert await storage.clean() > 0
        assert storage.statistics().segment_bytes < before
        assert len(entries_of(await read(storage, 1, 0, count - 1))) > 0
        await storage.close()

    simulate(main)


def test_recovery_adds_leave_room_for_fences_deletions_and_one_rewrite() -> None:
    async def main(bench: Bench) -> None:
        bench.faults.capacity_bytes = 300_000
        # The share exceeds the floor: recovery adds may use what is above it.
        bench.config = dataclasses.replace(
            FRAGMENTED, disk_high_mark=1.0, disk_low_mark=0.99, reserve_share=0.2
        )
        async with serving(bench) as storage:
            await asyncio.sleep(10)
            await fill(storage, (1, 2, 3))
            await asyncio.sleep(10)
            taken = 0
            while await add(storage, make_run(9, taken, 1, size=400), recovery=True) is Status.OK:
                taken += 1
                await asyncio.sleep(0.1)
            assert taken > 10
            used = sum(len(name.current) for name in bench.platter.names.values())
            assert 300_000 - used >= bench.config.floor_bytes - 1000
            for ledger_id in range(100, 120):
                fenced = await storage.fence(LedgerId(ledger_id), KEY)
                assert fenced.status is Status.OK
            for ledger_id in (2, 3):
                assert await storage.delete_ledger(LedgerId(ledger_id)) is Status.OK
            await asyncio.sleep(60)
            assert storage.is_writable
            assert await add(storage, make_run(9, taken, 1, size=400), recovery=True) is Status.OK

    simulate(main)


def test_bookie_without_room_for_its_reserve_is_read_only() -> None:
    async def main(bench: Bench) -> None:
        bench.config = FRAGMENTED
        bench.faults.capacity_bytes = FRAGMENTED.floor_bytes - 1
        async with serving(bench) as storage:
            await asyncio.sleep(10)
            assert not storage.is_writable
            assert "log/reserve" not in bench.platter.names
            bench.faults.capacity_bytes *= 20
            await asyncio.sleep(10)
            assert storage.is_writable
            assert "log/reserve" in bench.platter.names

    simulate(main)


def test_disk_full_of_live_entries_is_not_rewritten() -> None:
    async def main(bench: Bench) -> None:
        bench.faults.capacity_bytes = 300_000
        bench.config = FRAGMENTED
        async with serving(bench) as storage:
            await asyncio.sleep(10)
            await fill(storage, (1,))
            await asyncio.sleep(600)
            assert not storage.is_writable
            before = storage.statistics().cleaned_segments
            await asyncio.sleep(3600)
            assert storage.statistics().cleaned_segments == before

    simulate(main)


def test_index_on_a_full_separate_disk_makes_the_bookie_read_only() -> None:
    async def main(bench: Bench) -> None:
        bench.config = FRAGMENTED
        bench.faults.index_capacity_bytes = 100_000
        async with serving(bench) as storage:
            await asyncio.sleep(10)
            assert storage.is_writable
            assert storage.disk_spaces["index"].total_bytes == 100_000
            bench.faults.index_capacity_bytes = 10
            await asyncio.sleep(10)
            assert not storage.is_writable
            (condition,) = storage.writability.conditions()
            assert condition.where == "index"
            assert "disk of index/" in condition.text
            assert "log/reserve" in bench.platter.names  # it would not help there
            bench.faults.index_capacity_bytes = 100_000
            await asyncio.sleep(10)
            assert storage.is_writable

    simulate(main)


def test_runs_of_deleted_ledgers_need_no_room_in_the_index() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for ledger_id in range(1, 20):
            assert await add(storage, make_run(ledger_id, 0, 2)) is Status.OK
        bench.platter.stores["index"].puts_left = 10
        with pytest.raises(DiskFullError):
            await storage.checkpoint()
        for ledger_id in range(1, 20):
            assert await storage.delete_ledger(LedgerId(ledger_id)) is Status.OK
        with pytest.raises(DiskFullError):  # the tombstones
            await storage.checkpoint()
        assert storage.statistics().runs_in_memory == 0
        bench.platter.stores["index"].puts_left = None
        await storage.clean()
        await storage.checkpoint()
        assert storage.statistics().live_bytes == 0
        await storage.close()

    simulate(main)


def test_a_deletion_is_stored_after_a_checkpoint_without_room() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 2)) is Status.OK
        await storage.checkpoint()
        assert await storage.delete_ledger(LedgerId(7)) is Status.OK
        bench.platter.stores["index"].puts_left = 0
        with pytest.raises(DiskFullError):
            await storage.checkpoint()
        bench.platter.stores["index"].puts_left = None
        await storage.checkpoint()
        storage = await bench.reopen(storage)
        assert (await read(storage, 7, 0, 1)).status is Status.DELETED
        assert await add(storage, make_run(7, 0, 2)) is Status.DELETED
        await storage.close()

    simulate(main)


def test_start_on_a_full_disk_removes_the_reserve_first() -> None:
    async def main(bench: Bench) -> None:
        bench.config = dataclasses.replace(FRAGMENTED, reserve_share=0.2)
        bench.faults.capacity_bytes = 10 * 2**20
        async with serving(bench):
            await asyncio.sleep(60)
        disk = CrashableDisk(bench.platter, bench.rng, bench.faults)
        assert not await make_room(disk, bench.config)
        bench.faults.capacity_bytes = 2 * 2**20
        assert await make_room(disk, bench.config)
        assert "log/reserve" not in bench.platter.names
        assert not await make_room(disk, bench.config)

    simulate(main)


@pytest.mark.parametrize(("total", "fits"), [(160 * MIB, False), (2 * GIB, True)])
def test_a_disk_that_is_smaller_than_its_reserve_is_refused(total: int, *, fits: bool) -> None:
    space = DiskSpace(total, total)
    if fits:
        check_room(space, StorageConfig())
        return
    with pytest.raises(DiskTooSmallError, match=r"reserve_bytes_min .* segment_bytes_max") as found:
        check_room(space, StorageConfig())
    assert str(total) in str(found.value)
    check_room(space, StorageConfig(segment_bytes_max=16 * MIB, reserve_bytes_min=8 * MIB))


class QuotaDisk(CrashableDisk):
    """Disk with a quota: its file system reports far more room than writes find."""

    free_bytes = 9 * 10**8

    @override
    async def space(self, directory: str = "") -> DiskSpace:
        return DiskSpace(10**9, self.free_bytes)


@pytest.mark.parametrize("free_bytes", [9 * 10**8, 4 * 10**7])
def test_an_exhausted_quota_leaves_the_room_of_the_reserve_to_fences(free_bytes: int) -> None:
    """Also where the file system is above its high mark."""

    async def main(bench: Bench) -> None:
        bench.config = dataclasses.replace(FRAGMENTED, reserve_share=0.0001)
        bench.faults.capacity_bytes = CAPACITY
        disk = QuotaDisk(bench.platter, bench.rng, bench.faults)
        storage = await BookieStorage.open(disk, bench.config, rng=bench.rng)
        running = asyncio.create_task(storage.background())
        await asyncio.sleep(30)
        assert "log/reserve" in bench.platter.names
        used = sum(len(name.current) for name in bench.platter.names.values())
        bench.faults.capacity_bytes, disk.free_bytes = used + 20_000, free_bytes
        for round_number in range(3):
            # Recovery adds leave room for fences, also when trials of the disk have failed.
            for entry_id in range(500):
                await add(storage, make_run(9, entry_id, 1, size=400), recovery=True)
            await asyncio.sleep(1)
            assert "log/reserve" not in bench.platter.names
            first = 100 + 20 * round_number
            for ledger_id in range(first, first + 20):
                fenced = await storage.fence(LedgerId(ledger_id), KEY)
                assert fenced.status is Status.OK
            await asyncio.sleep(60)
            assert not storage.is_writable
        bench.faults.capacity_bytes = CAPACITY
        disk.free_bytes = 9 * 10**8
        await asyncio.sleep(1300)  # the longest wait for a trial, and the time of the reserve
        assert storage.is_writable
        reserve = bench.platter.names["log/reserve"]
        assert len(reserve.current) == bench.config.reserve_bytes(10**9)
        assert not running.done()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await storage.close()

    simulate(main)
