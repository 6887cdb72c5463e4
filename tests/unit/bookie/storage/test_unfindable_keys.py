"""A flipped bit in a key of the index hides other keys from searches, not from scans. The storage
answers UNKNOWN, or refuses to open, and names the command that rebuilds the index.
"""

import asyncio
import random
import shutil
from pathlib import Path

import pytest

from bookie.config import KIB, StorageConfig
from bookie.errors import DiskFailedError
from bookie.files.disk_real import RealDisk
from bookie.files.index_lmdb import DATA_NAME
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.opening import INDEX_NAME
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.lmdb_pages import hide_a_state
from tests.support.bookie.storage_fixture import KEY, Bench, add, entries_of, read, simulate

CONFIG = StorageConfig(
    segment_bytes_max=64 * KIB, reserve_bytes_min=KIB, reserve_share=0.0, hot_ledgers_max=1
)
LEDGERS = 200
DATA = Path(INDEX_NAME) / DATA_NAME


async def open_storage(directory: Path) -> BookieStorage:
    disk = RealDisk(directory)
    try:
        return await BookieStorage.open(disk, CONFIG, rng=random.Random(1))
    except DiskFailedError:
        await disk.close()
        raise


async def add_to_all(storage: BookieStorage, first: int) -> None:
    """Add two entries to each ledger."""
    adds = [add(storage, make_run(ledger_id, first, 2)) for ledger_id in range(LEDGERS)]
    assert set(await asyncio.gather(*adds)) == {Status.OK}


async def write_ledgers(directory: Path) -> None:
    """Store two entries in each of the ledgers, with a checkpoint at the end."""
    storage = await open_storage(directory)
    await add_to_all(storage, 0)
    await storage.checkpoint()
    await storage.close()


async def test_hidden_state_is_unknown_and_ends_the_storage(tmp_path: Path) -> None:
    await write_ledgers(tmp_path)
    hidden = hide_a_state(tmp_path / DATA)
    storage = await open_storage(tmp_path)
    assert not storage.statistics().is_limbo
    kept = await read(storage, hidden - 1, 0, 1)
    assert entries_of(kept) == {i: payload_of(hidden - 1, i) for i in range(2)}
    assert (await read(storage, hidden, 0, 1)).status is Status.UNKNOWN
    snapshot = await storage.reads.read_lac(LedgerId(hidden), KEY)
    assert snapshot.status is Status.UNKNOWN
    with pytest.raises(DiskFailedError, match=f"state of ledger {hidden} .* rebuild-index"):
        await storage.background()
    await storage.close()


async def test_replay_of_a_record_of_the_hidden_ledger_ends_the_start(tmp_path: Path) -> None:
    await write_ledgers(tmp_path / "data")
    storage = await open_storage(tmp_path / "data")
    await add_to_all(storage, 2)
    killed = shutil.copytree(tmp_path / "data", tmp_path / "killed")
    await storage.close()
    hide_a_state(killed / DATA)
    with pytest.raises(DiskFailedError, match=r"state of ledger \d+ .* rebuild-index"):
        await open_storage(killed)


async def test_keys_out_of_order_end_the_start(tmp_path: Path) -> None:
    """A run's key that a flipped bit moves behind all others of its page misleads searches for the
    keys beside it.
    """
    await write_ledgers(tmp_path)
    path = tmp_path / DATA
    data = path.read_bytes()
    key = b"r" + bytes(7) + b"\x64" + bytes(7) + b"\1"
    assert key in data
    path.write_bytes(data.replace(key, b"r\x08" + key[2:]))
    with pytest.raises(DiskFailedError, match=r"out of order: .* rebuild-index"):
        await open_storage(tmp_path)


def test_number_of_keys_must_be_that_of_the_store() -> None:
    async def main(bench: Bench) -> None:
        storage = await bench.open()
        assert await add(storage, make_run(1, 0, 2)) is Status.OK
        await storage.checkpoint()
        await storage.close()
        bench.platter.stores["index"].assign(b"t", b"a key that no scan of a kind finds")
        with pytest.raises(DiskFailedError, match=r"5 keys, and 4 are found .* rebuild-index"):
            await bench.open()

    simulate(main)
