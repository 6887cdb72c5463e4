"""A storage on a real disk: a killed process loses nothing that it acknowledged; one process per
directory.
"""

import asyncio
import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from bookie.config import KIB, StorageConfig
from bookie.errors import DirectoryLockedError
from bookie.files.disk_real import RealDisk
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from metadata.ids import EntryId, LedgerId
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.storage_fixture import KEY, add, entries_of, read

ROOT = Path(__file__).parents[3]
CONFIG = StorageConfig(
    segment_bytes_max=64 * KIB,
    checkpoint_log_bytes=50 * KIB,
    transaction_runs_max=50,
    index_map_bytes=64 * KIB,
    recent_bytes_max=8 * KIB,
    reserve_bytes_min=KIB,
    reserve_share=0.0,
    disk_high_mark=1.0,
    disk_low_mark=0.999999,
    clean_interval_s=0.05,
)
LEDGERS = 3


async def open_storage(directory: Path) -> BookieStorage:
    return await BookieStorage.open(RealDisk(directory), CONFIG, rng=random.Random(1))


async def write_until_killed(directory: Path) -> None:
    """Print every acknowledged (ledger, last entry id), one line each."""
    storage = await open_storage(directory)
    background = asyncio.create_task(storage.background())

    async def write(ledger_id: int) -> None:
        first = (await storage.reads.read_lac(LedgerId(ledger_id), KEY)).highest_entry_id + 1
        while not background.done():
            batch = make_run(ledger_id, first, 5, lac=first - 1)
            assert await add(storage, batch) is Status.OK
            first += 5
            os.write(1, f"{ledger_id} {first - 1}\n".encode())

    await asyncio.gather(*[write(ledger_id) for ledger_id in range(LEDGERS)])


async def check(directory: Path, acknowledged: dict[int, int]) -> None:
    storage = await open_storage(directory)
    assert not storage.statistics().is_limbo
    for ledger_id, last in acknowledged.items():
        found: dict[int, bytes] = {}
        while len(found) <= last:
            result = await read(storage, ledger_id, len(found), last)
            assert result.batches, f"ledger {ledger_id} ends at {len(found)}: {result.status.name}"
            found |= entries_of(result)
        assert found == {i: payload_of(ledger_id, i) for i in range(last + 1)}
        snapshot = await storage.reads.read_lac(LedgerId(ledger_id), KEY)
        beyond = snapshot.highest_entry_id + 1
        assert (await read(storage, ledger_id, beyond, beyond)).status is Status.NO_SUCH_ENTRY
        assert snapshot.lac >= last - 5
    await storage.close()


def test_kill_9_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    acknowledged: dict[int, int] = {}
    code = (
        "import asyncio, sys; from pathlib import Path; "
        "from tests.unit.bookie.storage.test_real_disk_storage import write_until_killed; "
        "asyncio.run(write_until_killed(Path(sys.argv[1])))"
    )
    for lines in (1, 200):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            seen = [process.stdout.readline() for _ in range(lines)]
            process.send_signal(signal.SIGKILL)
            seen += process.stdout.readlines()
        for line in seen:
            if line.endswith(b"\n"):
                ledger_id, last = map(int, line.split())
                acknowledged[ledger_id] = last
        assert len(seen) >= lines
        asyncio.run(check(tmp_path, acknowledged))


def test_a_second_process_on_the_directory_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        storage = await open_storage(tmp_path)
        other = RealDisk(tmp_path)
        with pytest.raises(DirectoryLockedError):
            await BookieStorage.open(other, CONFIG, rng=random.Random(1))
        await other.close()
        await storage.close()
        storage = await open_storage(tmp_path)
        assert await add(storage, make_run(1, 0, 1)) is Status.OK
        assert storage.lac_of(LedgerId(1)) == EntryId(-1)
        await storage.close()

    asyncio.run(main())


def test_cleaning_and_checkpoints_over_lmdb(tmp_path: Path) -> None:
    async def main() -> None:
        storage = await open_storage(tmp_path)
        for first in range(0, 900, 3):
            for ledger_id in range(LEDGERS):
                batch = make_run(ledger_id, first, 3, lac=first - 1)
                assert await add(storage, batch) is Status.OK
        await storage.checkpoint()
        before = storage.statistics().segment_bytes
        assert await storage.delete_ledger(LedgerId(0)) is Status.OK
        freed = 0
        for _ in range(10):
            freed += await storage.clean()
            await storage.checkpoint()
        assert freed > 0
        assert storage.statistics().segment_bytes < before
        await storage.close()

    asyncio.run(main())
    asyncio.run(check(tmp_path, {1: 899, 2: 899}))


BAD_OFFSET = 8192
ENTRIES = 60


async def test_a_start_with_an_unreadable_sector_is_in_limbo(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = await open_storage(tmp_path / "old")
    for first in range(ENTRIES):
        assert await add(storage, make_run(7, first, 1, size=300)) is Status.OK
    shutil.copytree(tmp_path / "old", tmp_path / "new")  # as a kill leaves it
    await storage.close()
    read_at = os.pread

    def pread(descriptor: int, size: int, offset: int) -> bytes:
        name = Path(f"/proc/self/fd/{descriptor}").readlink()
        if name.suffix == ".log" and offset < BAD_OFFSET + 512 and offset + size > BAD_OFFSET:
            raise OSError(errno.EIO, "Input/output error")
        return read_at(descriptor, size, offset)

    monkeypatch.setattr(os, "pread", pread)
    storage = await open_storage(tmp_path / "new")
    assert storage.statistics().is_limbo
    found = [(await read(storage, 7, number, number)).status for number in range(ENTRIES)]
    assert set(found) == {Status.OK, Status.UNKNOWN}
    assert found.count(Status.UNKNOWN) < ENTRIES / 2
    await storage.close()
