"""New segments, adds, reads and rewriting do not wait for each other, on a real disk and on the
simulated one.
"""

import asyncio
import errno
import os
import random
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from bookie.config import KIB, StorageConfig
from bookie.errors import BookieError, DescriptorsExhaustedError, DiskFullError
from bookie.files import disk_calls, disk_real
from bookie.files.disk import Buffer
from bookie.files.disk_real import READ_THREADS, RealDisk
from bookie.log.log import BEGIN_AT_SHARE, Log, LogItem
from bookie.log.records import ADDS
from bookie.log.segments import Segments
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from quire.server.overriding import override
from tests.simulation.disk import CrashableDisk, CrashableFile, DiskFaults, Platter
from tests.simulation.loop import run_simulation
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.storage_fixture import Bench, add, entries_of, read, simulate

DEADLINE_S = 30.0
SEGMENT_BYTES = 8 * KIB
PAYLOAD_BYTES = 500


async def test_control_work_does_not_wait_for_cold_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_read = threading.Event()
    read_all = disk_calls.read_all

    def read_when_told(descriptor: int, what: str, offset: int, size: int) -> bytes:
        may_read.wait()
        return read_all(descriptor, what, offset, size)

    monkeypatch.setattr(disk_calls, "read_all", read_when_told)
    disk = RealDisk(tmp_path)
    file = await disk.create("log/a")
    await file.commit(0, [b"0123456789"])
    reads = [asyncio.ensure_future(file.read(0, 4)) for _ in range(4 * READ_THREADS)]
    await asyncio.sleep(0)

    async def control() -> None:
        made = await disk.create("log/b", preallocate_bytes=KIB)
        await disk.sync_directory("log")
        await disk.rename("log/b", "log/c")
        assert await disk.list_names("log") == ["a", "c"]
        assert (await disk.space()).total_bytes
        await made.close()
        await disk.unlink("log/c")

    try:
        await asyncio.wait_for(control(), DEADLINE_S)
        assert not any(task.done() for task in reads)
    finally:
        may_read.set()
    assert [bytes(each) for each in await asyncio.gather(*reads)] == [b"0123"] * len(reads)
    await file.close()
    await disk.close()


async def test_a_commit_to_the_log_does_not_wait_for_background_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_rewrite = threading.Event()
    write_and_sync = disk_calls.write_and_sync

    def write_when_told(
        descriptor: int, what: str, offset: int, buffers: Sequence[Buffer]
    ) -> float:
        if what == "log/background":
            may_rewrite.wait()
        return write_and_sync(descriptor, what, offset, buffers)

    monkeypatch.setattr(disk_calls, "write_and_sync", write_when_told)
    disk = RealDisk(tmp_path)
    log = await disk.create("log/log")
    rewritten = await disk.create("log/background", background=True)
    rewriting = asyncio.ensure_future(rewritten.commit(0, [b"r" * 100_000]))
    await asyncio.sleep(0)
    try:
        await asyncio.wait_for(log.commit(0, [b"a" * 100_000]), DEADLINE_S)
        assert not rewriting.done()
    finally:
        may_rewrite.set()
    await rewriting
    for file in (log, rewritten):
        await file.close()
    await disk.close()


class GatedDisk(CrashableDisk):
    """Simulated disk that creates log files only while `gate` is set, and has room for them only
    while `has_room`.
    """

    def __init__(self, platter: Platter, rng: random.Random, faults: DiskFaults) -> None:
        super().__init__(platter, rng, faults)
        self.gate = asyncio.Event()
        self.gate.set()
        self.has_room = True

    @override
    async def create(
        self, name: str, *, preallocate_bytes: int = 0, background: bool = False
    ) -> CrashableFile:
        await self.gate.wait()
        if not self.has_room:
            raise DiskFullError(name)
        return await super().create(
            name, preallocate_bytes=preallocate_bytes, background=background
        )


class Written:
    """A log on a gated disk, and the result of each record."""

    def __init__(self) -> None:
        self.platter = Platter()
        self.faults = DiskFaults()
        self.disk = GatedDisk(self.platter, random.Random(1), self.faults)
        self.errors: list[BookieError | None] = []
        config = StorageConfig(segment_bytes_max=SEGMENT_BYTES)
        self.log = Log(self.disk, config, Segments(self.disk), 0, self.on_group)
        self.running = asyncio.create_task(self.log.run())
        self._number = 0

    def on_group(self, group: list[LogItem], error: BookieError | None) -> None:
        self.errors += [error] * len(group)

    async def write(self) -> None:
        """Write one record and wait until it is answered."""
        self.log.append(ADDS, bytes(make_run(7, self._number, 1, size=PAYLOAD_BYTES).data), None)
        self._number += 1
        await self.log.barrier()

    async def fill(self, share: float) -> None:
        """Write until the active segment is filled to a share."""
        while self.log.durable_lsn % 2**32 < share * SEGMENT_BYTES:
            await self.write()

    async def close(self) -> list[str]:
        self.log.close()
        await self.running
        return await self.disk.list_names("log")


def test_a_roll_does_not_wait_for_the_creation_of_a_file() -> None:
    async def test() -> None:
        written = Written()
        await written.fill(BEGIN_AT_SHARE)
        await asyncio.sleep(1)
        assert await written.disk.list_names("log") == ["00000001.log", "00000002.log"]
        written.disk.gate.clear()
        await written.fill(1.0)
        await written.write()
        assert written.log.durable_lsn >> 32 == 2
        written.disk.gate.set()
        assert await written.close() == ["00000001.log", "00000002.log"]
        assert written.errors == [None] * len(written.errors)

    run_simulation(test, 1)


def test_closing_log_removes_the_file_created_ahead() -> None:
    async def test() -> None:
        written = Written()
        await written.fill(BEGIN_AT_SHARE)
        assert await written.close() == ["00000001.log"]

    run_simulation(test, 1)


def test_full_disk_does_not_fail_the_creation_ahead() -> None:
    async def test() -> None:
        written = Written()
        await written.write()
        written.disk.has_room = False
        await written.fill(1.0)
        written.disk.has_room = True
        await written.write()
        assert written.errors == [None] * len(written.errors)
        assert written.log.durable_lsn >> 32 == 3  # the number of the first attempt stays unused
        await written.close()

    run_simulation(test, 1)


@pytest.mark.parametrize("preallocates", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_start_removes_a_file_created_ahead_before_a_crash(seed: int, preallocates: bool) -> None:
    async def test(bench: Bench) -> None:
        bench.faults.preallocates = preallocates
        bench.config = StorageConfig(segment_bytes_max=SEGMENT_BYTES, reserve_bytes_min=0)
        storage = await bench.open()
        entries = int(BEGIN_AT_SHARE * SEGMENT_BYTES) // PAYLOAD_BYTES
        for entry_id in range(entries):
            assert await add(storage, make_run(7, entry_id, 1, size=PAYLOAD_BYTES)) is Status.OK
        await asyncio.sleep(1)
        assert set(bench.platter.durable_names) == {"log/00000001.log", "log/00000002.log"}
        bench.platter.crash(random.Random(seed))
        storage = await bench.open()
        assert "log/00000002.log" not in bench.platter.names
        for entry_id in range(entries, 2 * entries):
            assert await add(storage, make_run(7, entry_id, 1, size=PAYLOAD_BYTES)) is Status.OK
        await storage.close()
        storage = await bench.open()
        assert entries_of(await read(storage, 7, 0, 2 * entries)) == {
            entry_id: payload_of(7, entry_id, PAYLOAD_BYTES) for entry_id in range(2 * entries)
        }
        assert not storage.statistics().is_limbo
        await storage.close()

    simulate(test, seed)


class Exhausted(CrashableDisk):
    """A simulated disk that has descriptors only while `has_descriptors`."""

    has_descriptors = True

    @override
    async def open(self, name: str) -> CrashableFile:
        if not self.has_descriptors:
            raise DescriptorsExhaustedError(name, "too many open files")
        return await super().open(name)

    @override
    async def create(
        self, name: str, *, preallocate_bytes: int = 0, background: bool = False
    ) -> CrashableFile:
        if not self.has_descriptors:
            raise DescriptorsExhaustedError(name, "too many open files")
        return await super().create(
            name, preallocate_bytes=preallocate_bytes, background=background
        )


def test_bookie_without_descriptors_refuses_connections_and_continues() -> None:
    async def test(bench: Bench) -> None:
        bench.config = StorageConfig(segment_bytes_max=SEGMENT_BYTES, reserve_bytes_min=0)
        storage = await bench.open()
        entry_id = 0
        while storage.statistics().segments < 3:
            assert await add(storage, make_run(7, entry_id, 1, size=PAYLOAD_BYTES)) is Status.OK
            entry_id += 1
        await storage.close()
        disk = Exhausted(bench.platter, bench.rng, bench.faults)
        storage = await BookieStorage.open(disk, bench.config, rng=bench.rng)
        disk.has_descriptors = False
        assert (await read(storage, 7, 0, entry_id)).status is Status.UNKNOWN
        assert await add(storage, make_run(7, entry_id, 1, size=PAYLOAD_BYTES)) is Status.UNKNOWN
        cleaning = asyncio.create_task(storage.clean())
        await asyncio.sleep(5)
        assert storage.statistics().damaged_ranges == 0
        disk.has_descriptors = True
        assert await add(storage, make_run(7, entry_id, 1, size=PAYLOAD_BYTES)) is Status.OK
        assert len(entries_of(await read(storage, 7, 0, entry_id))) == entry_id + 1
        await cleaning
        await storage.close()

    simulate(test)


async def test_control_work_waits_for_a_descriptor_and_a_read_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = RealDisk(tmp_path)
    await (await disk.create("log/a")).close()
    open_file, failures = os.open, 2

    def open_if_any(path: Path, flags: int, mode: int = 0) -> int:
        nonlocal failures
        if failures:
            failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return open_file(path, flags, mode)

    monkeypatch.setattr(disk_real, "DESCRIPTOR_WAIT_S", 0.001)
    monkeypatch.setattr(os, "open", open_if_any)
    await (await disk.create("log/b")).close()
    assert not failures
    failures = 1
    with pytest.raises(DescriptorsExhaustedError):
        await disk.open("log/a")
    await (await disk.open("log/a")).close()
    await disk.close()
