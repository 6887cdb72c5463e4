"""Edge cases of a storage in which a checkpoint meets its cancellation, a deletion, a new segment
or a read; and files of an interrupted cleaning.
"""

import asyncio
import dataclasses
import random

import pytest

from bookie.config import KIB
from bookie.errors import DiskFailedError
from bookie.log import records
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId
from quire.server.overriding import override
from tests.simulation.disk import CrashableDisk, CrashableFile
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.storage_fixture import (
    KEY,
    OTHER_KEY,
    Bench,
    add,
    entries_of,
    read,
    simulate,
)

L = LedgerId(7)


@pytest.mark.parametrize("steps", range(0, 24, 2))
def test_cancelled_waiter_does_not_affect_others(steps: int) -> None:
    """Requests are cancelled when their connection is lost; their group is committed anyway."""

    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 1)) is Status.OK
        waiting = [
            asyncio.create_task(storage.write_lac(L, EntryId(0), KEY)),
            asyncio.create_task(storage.fence(LedgerId(8), KEY)),
            asyncio.create_task(storage.delete_ledger(LedgerId(9))),
        ]
        others = asyncio.create_task(add(storage, make_run(7, 1, 1)))
        await asyncio.sleep(steps / 1000)
        for task in waiting:
            task.cancel()
        assert await others is Status.OK
        assert await add(storage, make_run(7, 2, 1)) is Status.OK
        assert (await storage.fence(L, KEY)).status is Status.OK

    simulate(main)


def test_an_error_in_an_answer_stops_the_storage_for_all() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        running = asyncio.create_task(storage.background())

        def fail(_status: Status) -> None:
            raise ZeroDivisionError

        storage.add(make_run(7, 0, 1), recovery=False, master_key=KEY, done=fail)
        with pytest.raises(ZeroDivisionError):
            await running
        assert await add(storage, make_run(7, 1, 1)) is Status.UNKNOWN
        assert (await storage.fence(L, KEY)).status is Status.UNKNOWN

    simulate(main)


@pytest.mark.parametrize("steps", range(0, 24, 2))
def test_a_fence_outlives_a_checkpoint_that_was_cancelled(steps: int) -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(8, 0, 2)) is Status.OK
        assert (await storage.fence(L, KEY)).status is Status.OK
        checkpoint = asyncio.create_task(storage.checkpoint())
        await asyncio.sleep(steps / 1000)
        checkpoint.cancel()
        await asyncio.gather(checkpoint, return_exceptions=True)
        storage = await bench.reopen(storage)
        assert (await storage.reads.read_lac(L, KEY)).fenced
        assert await add(storage, make_run(7, 0, 1)) is Status.FENCED

    simulate(main)


def test_fence_inside_earlier_damage_counts_as_lost() -> None:
    """One bad sector over the end of an adds record and the fence behind it."""

    async def main(bench: Bench) -> None:
        storage = await bench.open()
        await add(storage, make_run(7, 0, 5))
        await storage.fence(LedgerId(8), KEY)
        await add(storage, make_run(7, 5, 5))
        await add(storage, make_run(7, 10, 5))
        bench.platter.crash(bench.rng)
        name = "log/00000001.log"
        data = bytes(bench.platter.names[name].current)
        place = next(
            offset
            for offset in range(len(data))
            if (header := records.decode_header(data, offset, records.lsn_of(1, offset)))
            and header.kind is records.RecordKind.MASTER_KEY
            and data[offset + records.RECORD_HEADER_BYTES :].startswith(
                LedgerId(8).to_bytes(8, "little")
            )
        )
        for offset in range(place - 1, place + 2 * records.RECORD_HEADER_BYTES + 40 + 5):
            bench.platter.flip_bit(name, offset * 8)
        storage = await bench.open()
        assert storage.statistics().is_limbo
        assert await add(storage, make_run(8, 0, 1)) is Status.UNKNOWN
        assert (await read(storage, 7, 0, 14)).status is Status.UNKNOWN

    simulate(main)


def test_room_is_freed_after_repetitions_of_stored_batches() -> None:
    async def main(bench: Bench) -> None:
        bench.config = dataclasses.replace(bench.config, queue_bytes_max=16 * KIB)
        storage = await bench.open()
        for first in range(100):
            assert await add(storage, make_run(7, first, 1)) is Status.OK
        answers: list[Status] = []
        for first in range(100):
            if not storage.has_room:
                break
            storage.add(make_run(7, first, 1), recovery=False, master_key=KEY, done=answers.append)
        assert not storage.has_room
        async with asyncio.timeout(60):
            await storage.wait_for_room()
        assert storage.has_room
        await asyncio.sleep(60)
        assert set(answers) == {Status.OK}

    simulate(main)


@pytest.mark.parametrize("restarts", [False, True])
def test_a_ledger_deleted_before_any_checkpoint_is_freed(restarts: bool) -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(300):
            await add(storage, make_run(7, first, 1))
        assert await storage.delete_ledger(L) is Status.OK
        if restarts:
            bench.platter.crash(bench.rng)
            storage = await bench.open()
        await add(storage, make_run(8, 0, 100))
        await storage.checkpoint()
        before = storage.statistics().segment_bytes
        for _ in range(3):
            await storage.clean()
            await storage.checkpoint()
        assert storage.statistics().segment_bytes < before / 2
        assert len(entries_of(await read(storage, 8, 0, 99))) == 100

    simulate(main)


@pytest.mark.parametrize("steps", range(0, 60, 3))
def test_a_ledger_deleted_during_a_checkpoint_leaves_no_runs(steps: int) -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(0, 60, 3):
            await add(storage, make_run(7, first, 1))
        checkpoint = asyncio.create_task(storage.checkpoint())
        await asyncio.sleep(steps / 1000)
        assert await storage.delete_ledger(L) is Status.OK
        await storage.clean()
        await checkpoint
        await storage.clean()
        runs = [key for key in bench.platter.stores["index"].keys if key.startswith(b"r")]
        assert not runs

    simulate(main)


class SlowNames(CrashableDisk):
    """Disk that makes new names durable only after the test allows it."""

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.platter, bench.rng, bench.faults)
        self.may_sync = asyncio.Event()
        self.may_sync.set()
        self.is_syncing = asyncio.Event()

    @override
    async def sync_directory(self, directory: str) -> None:
        """See `Disk.sync_directory`."""
        if not self.may_sync.is_set():
            self.is_syncing.set()
        await self.may_sync.wait()
        await super().sync_directory(directory)


@pytest.mark.parametrize("seed", range(6))
def test_a_checkpoint_never_names_a_segment_whose_name_is_not_durable(seed: int) -> None:
    async def main(bench: Bench) -> None:
        disk = SlowNames(bench)
        storage = await BookieStorage.open(disk, bench.config, rng=bench.rng)
        first = 0
        while storage.statistics().segment_bytes < bench.config.segment_bytes_max:
            assert await add(storage, make_run(7, first, 10)) is Status.OK
            first += 10
            disk.may_sync.clear()  # before the next file is created, ahead of the roll
        adding = asyncio.create_task(add(storage, make_run(7, first, 10)))
        await disk.is_syncing.wait()
        await storage.checkpoint()
        adding.cancel()
        bench.platter.crash(random.Random(seed))
        storage = await bench.open()
        assert not storage.statistics().is_limbo
        assert len(entries_of(await read(storage, 7, 0, first - 1))) == first

    simulate(main, seed)


def test_start_removes_unfinished_files_of_a_cleaning() -> None:
    async def main(bench: Bench) -> None:
        bench.config = dataclasses.replace(
            bench.config, clean_mean_run_bytes_min=1000, segment_bytes_max=64 * KIB
        )
        storage = await bench.open()
        for first in range(200):
            for ledger_id in (7, 8):
                await add(storage, make_run(ledger_id, first, 1))
        storage = await bench.reopen(storage)
        await add(storage, make_run(9, 0, 1))
        await storage.checkpoint()
        known = list(bench.platter.names)
        cleaning = asyncio.create_task(storage.clean())
        name = ""
        for _ in range(100_000):
            await asyncio.sleep(0.0001)
            name = next((name for name in bench.platter.names if name not in known), "")
            if name and bench.platter.names[name].current:
                break
        assert name
        cleaning.cancel()
        await asyncio.gather(cleaning, return_exceptions=True)
        unfinished = bench.platter.names[name]
        del unfinished.current[-7:]
        unfinished.durable = bytearray(unfinished.current)
        storage = await bench.reopen(storage)
        assert all(content is not unfinished for content in bench.platter.names.values())
        for ledger_id in (7, 8):
            assert len(entries_of(await read(storage, ledger_id, 0, 199))) == 200

    simulate(main)


def test_unreadable_place_is_unknown_and_does_not_stop_the_storage(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain_read = CrashableFile.read

    async def read_or_fail(self: CrashableFile, offset: int, size: int) -> object:
        if self.name == "log/00000001.log":
            raise DiskFailedError(self.name, "input/output error")
        return await plain_read(self, offset, size)

    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(100):
            for ledger_id in (7, 8):
                await add(storage, make_run(ledger_id, first, 1))
        storage = await bench.reopen(storage)
        await add(storage, make_run(9, 0, 1))
        await storage.checkpoint()
        monkeypatch.setattr(CrashableFile, "read", read_or_fail)
        monkeypatch.setattr(CrashableFile, "read_nowait", lambda *_: None)
        assert (await read(storage, 8, 0, 99)).status is Status.UNKNOWN
        await storage.delete_ledger(L)
        freed = 0
        for _ in range(10):
            freed += await storage.clean()
            await storage.checkpoint()
        assert freed > 0
        assert "log/00000001.log" in bench.platter.names
        result = await read(storage, 8, 99, 99)
        assert entries_of(result) == {99: payload_of(8, 99)}

    simulate(main)


@pytest.mark.parametrize("seed", range(20))
def test_full_disk_with_a_reserve_does_not_prevent_the_start(seed: int) -> None:
    async def main(bench: Bench) -> None:
        bench.config = dataclasses.replace(bench.config, reserve_bytes_min=20 * KIB)
        bench.faults.capacity_bytes = 1 << 20
        storage = await bench.open()
        running = asyncio.create_task(storage.background())
        await asyncio.sleep(10)
        assert "log/reserve" in bench.platter.names
        running.cancel()
        bench.platter.crash(bench.rng)
        bench.faults.capacity_bytes = 20 * KIB + 100
        storage = await bench.open()
        running = asyncio.create_task(storage.background())
        await asyncio.sleep(10)
        assert not running.done()
        assert "log/reserve" not in bench.platter.names
        running.cancel()

    simulate(main, seed)


@pytest.mark.parametrize("is_missing", [False, True])
def test_a_damaged_state_takes_no_other_with_it(is_missing: bool) -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(7, 0, 5)) is Status.OK
        assert await add(storage, make_run(6, 0, 5, lac=3)) is Status.OK
        assert await storage.delete_ledger(L) is Status.OK
        assert (await storage.fence(LedgerId(8), KEY)).status is Status.OK
        assert (await storage.write_lac(LedgerId(9), EntryId(4), KEY)).status is Status.OK
        storage = await bench.reopen(storage)
        assert await add(storage, make_run(5, 0, 150)) is Status.OK
        await storage.checkpoint()
        for _ in range(3):  # the records of the states are no longer in the log
            await storage.clean()
        await storage.close()
        store = bench.platter.stores["index"]
        key = b"s" + bytes(7) + bytes([6])
        store.assign(key, None if is_missing else b"x" + store.pairs[key][1:])
        for _ in range(2):
            storage = await bench.open()
            assert storage.statistics().is_limbo
            assert await add(storage, make_run(7, 5, 1), recovery=True) is Status.DELETED
            assert await add(storage, make_run(8, 0, 1), recovery=True, key=OTHER_KEY) is (
                Status.UNAUTHORIZED
            )
            assert await add(storage, make_run(8, 0, 1)) is Status.FENCED
            assert (await storage.reads.read_lac(LedgerId(9), KEY)).lac == 4
            assert await add(storage, make_run(6, 5, 1)) in (Status.UNKNOWN, Status.FENCED)
            assert len(entries_of(await read(storage, 5, 0, 149))) == 150
            assert (await read(storage, 6, 9, 9)).status is Status.UNKNOWN
            await storage.close()
        storage = await bench.open()
        assert storage.statistics().is_limbo
        assert storage.statistics().checkpoint_mark > 0

    simulate(main)


class CountedFiles(CrashableDisk):
    """Disk that opens files as the real one does: on a thread that continues after a
    cancellation.
    """

    def __init__(self, bench: Bench) -> None:
        super().__init__(bench.platter, bench.rng, bench.faults)
        self.opened: list[CrashableFile] = []

    @override
    async def open(self, name: str) -> CrashableFile:
        """See `Disk.open`."""
        return await asyncio.shield(asyncio.ensure_future(self._open(name)))

    async def _open(self, name: str) -> CrashableFile:
        file = await super().open(name)
        self.opened.append(file)
        return file


def test_cancelled_reader_leaves_no_file_open(monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[CrashableFile] = []
    plain_close = CrashableFile.close

    async def close(self: CrashableFile) -> None:
        closed.append(self)
        await plain_close(self)

    async def main(bench: Bench) -> None:
        storage = await bench.open()
        for first in range(0, 400, 10):
            await add(storage, make_run(7, first, 10))
        await storage.close()
        disk = CountedFiles(bench)
        monkeypatch.setattr(CrashableFile, "close", close)
        storage = await BookieStorage.open(disk, bench.config, rng=bench.rng)
        for first in range(0, 400, 10):
            gone = asyncio.create_task(read(storage, 7, first, first))
            stays = asyncio.create_task(read(storage, 7, first + 1, first + 1))
            await asyncio.sleep(0.005)
            gone.cancel()
            assert (await stays).status is Status.OK
        await storage.close()
        assert [file.name for file in disk.opened if file not in closed] == []

    simulate(main)
