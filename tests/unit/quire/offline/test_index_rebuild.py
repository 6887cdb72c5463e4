"""A rebuilt index has the values of the old one, and guarantees nothing that was not proven."""

import asyncio
import dataclasses
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from bookie.config import StorageConfig
from bookie.errors import IndexFileError
from bookie.files.disk_real import RealDisk
from bookie.files.index_lmdb import DATA_NAME
from bookie.index import stored_runs, stored_states
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.opening import INDEX_NAME
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from quire.cli.bookie_server import check_directory
from quire.offline.index_rebuild import (
    NEW_NAME,
    IndexUnprovenError,
    RebuildReport,
    rebuild_index,
    swap_index,
)
from tests.simulation.disk import CrashableDisk
from tests.simulation.index_store import MemoryStore, MemoryTransaction
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.lmdb_pages import hide_a_state
from tests.support.bookie.storage_fixture import KEY, SMALL, Bench, add, entries_of, read, simulate

LEDGERS = (1, 2, 3, 4)
FENCED, DELETED = 3, 4
COUNT = 60
CONFIG = dataclasses.replace(SMALL, clean_live_share_max=0.9)


async def fill(bench: Bench) -> BookieStorage:
    """Store four ledgers over many segments; one is fenced and one deleted below the mark."""
    bench.config = CONFIG
    storage = await bench.open()
    for first in range(0, COUNT, 3):
        for ledger_id in LEDGERS:
            if first < COUNT // 2 or ledger_id not in (FENCED, DELETED):
                assert await add(storage, make_run(ledger_id, first, 3, size=90)) is Status.OK
        if first == COUNT // 2:
            await storage.fence(LedgerId(FENCED), KEY)
            await storage.delete_ledger(LedgerId(DELETED))
        if first % 12 == 0:
            await storage.checkpoint()
            await storage.clean()
    return storage


async def rebuild(bench: Bench, *, accepts_limbo: bool = False) -> RebuildReport:
    """Rebuild the index of a stopped storage, and replace the old one."""
    disk = CrashableDisk(bench.platter, bench.rng, bench.faults)
    try:
        report = await rebuild_index(disk, accepts_limbo=accepts_limbo, on_read=lambda _: None)
    finally:
        bench.platter.generation += 1
        bench.platter.locked = False
    bench.platter.stores["index"] = bench.platter.stores.pop(NEW_NAME)
    return report


async def check_everything(storage: BookieStorage) -> None:
    """Check that nothing was lost: entries, the fence, the key, the tombstone, sure negatives."""
    for ledger_id in (1, 2, FENCED):
        count = COUNT // 2 if ledger_id == FENCED else COUNT
        found = entries_of(await read(storage, ledger_id, 0, count - 1))
        assert found == {number: payload_of(ledger_id, number, 90) for number in range(count)}
        assert (await read(storage, ledger_id, count, count)).status is Status.NO_SUCH_ENTRY
        other = await read(storage, ledger_id, 0, 0, key=b"o" * 32)
        assert other.status is Status.UNAUTHORIZED
    assert await add(storage, make_run(FENCED, COUNT, 1)) is Status.FENCED
    assert await add(storage, make_run(DELETED, COUNT, 1), recovery=True) is Status.DELETED
    assert storage.is_writable


@pytest.mark.parametrize("stops", ["in order", "by a crash"])
def test_a_rebuilt_index_has_all_values_of_the_old_one(stops: str) -> None:
    async def main(bench: Bench) -> None:
        storage = await fill(bench)
        if stops == "in order":
            await storage.close()
        else:
            bench.platter.crash(bench.rng)
        report = await rebuild(bench)
        assert (report.damaged_runs, report.runs_added, report.limbo_ledgers) == (0, 0, 0)
        assert (report.ledger_count, report.deleted_count) == (3, 1)
        await check_everything(await bench.open())

    simulate(main)


def keys_of(store: MemoryStore, prefix: bytes) -> list[bytes]:
    return [key for key in store.keys if key.startswith(prefix)]


@pytest.mark.parametrize("seed", range(12))
def test_runs_that_are_damaged_or_lost_are_found_in_the_segments(seed: int) -> None:
    async def main(bench: Bench) -> None:
        storage = await fill(bench)
        await storage.close()
        store, rng = bench.platter.stores["index"], random.Random(seed)
        hurt = rng.sample(keys_of(store, b"r"), 3)
        for key in hurt:
            if rng.random() < 0.5:
                store.assign(key, None)
            else:
                store.assign(key, bytes(len(store.pairs[key])))
        ledgers = {int.from_bytes(key[1:9], "big") for key in hurt} - {DELETED}
        report = await rebuild(bench)
        assert report.limbo_ledgers == len(ledgers)
        assert report.runs_added >= len(ledgers)
        storage = await bench.open()
        for ledger_id in (1, 2, FENCED):
            count = COUNT // 2 if ledger_id == FENCED else COUNT
            found = entries_of(await read(storage, ledger_id, 0, count - 1))
            assert found == {number: payload_of(ledger_id, number, 90) for number in range(count)}
            negative = (await read(storage, ledger_id, count, count)).status
            expected = Status.UNKNOWN if ledger_id in ledgers else Status.NO_SUCH_ENTRY
            assert negative is expected
            if ledger_id in ledgers:
                assert await add(storage, make_run(ledger_id, COUNT, 1)) is Status.FENCED
        assert await add(storage, make_run(DELETED, COUNT, 1)) is Status.DELETED

    simulate(main)


def test_an_entry_that_is_damaged_in_the_log_stays_unknown() -> None:
    async def main(bench: Bench) -> None:
        storage = await fill(bench)
        await storage.close()
        payload = payload_of(1, 31, 90)
        for name, content in bench.platter.names.items():
            at = bytes(content.current).find(payload)
            if at >= 0:
                bench.platter.flip_bit(name, at * 8)
        assert (await rebuild(bench)).limbo_ledgers == 0
        storage = await bench.open()
        assert (await read(storage, 1, 31, 31)).status is Status.UNKNOWN
        assert entries_of(await read(storage, 1, 40, 40)) == {40: payload_of(1, 40, 90)}

    simulate(main)


def test_the_horizon_of_deleted_ledgers_and_the_numbers_of_segments_are_kept() -> None:
    async def main(bench: Bench) -> None:
        storage = await fill(bench)
        await storage.close()
        store = bench.platter.stores["index"]
        stored_states.trim_states(MemoryTransaction(store), [DELETED])
        stored_runs.name_segments(MemoryTransaction(store), [999])
        report = await rebuild(bench)
        assert (report.deleted_count, report.limbo_ledgers, report.is_limbo) == (0, 0, False)
        rebuilt = MemoryTransaction(bench.platter.stores["index"])
        found = stored_states.read_horizon(rebuilt)
        assert found is not None
        assert found[0] == DELETED
        storage = await bench.open()
        assert storage.is_writable
        assert await add(storage, make_run(1, COUNT, 1)) is Status.OK
        assert "log/000003e8.log" in bench.platter.names

    simulate(main)


def lose_horizon(store: MemoryStore) -> None:
    """Trim the tombstone, as a bookie with many of them does, and damage the horizon that replaces
    it.
    """
    trimmed = MemoryTransaction(store)
    stored_states.trim_states(trimmed, [DELETED])
    store.assign(b"h", bytes(len(store.pairs[b"h"])))


def lose_meta(store: MemoryStore) -> None:
    store.assign(b"m", None)


def damage_fence(store: MemoryStore) -> None:
    key = keys_of(store, b"s")[FENCED - 1]
    store.assign(key, bytes(len(store.pairs[key])))


def lose_tombstone(store: MemoryStore) -> None:
    store.assign(keys_of(store, b"s")[DELETED - 1], None)


@pytest.mark.parametrize("harm", [lose_meta, damage_fence, lose_tombstone, lose_horizon])
def test_states_that_cannot_be_accounted_for_are_refused_without_consent(
    harm: Callable[[MemoryStore], None],
) -> None:
    async def main(bench: Bench) -> None:
        storage = await fill(bench)
        await storage.close()
        store = bench.platter.stores["index"]
        harm(store)
        before = dict(store.pairs)
        with pytest.raises(IndexUnprovenError, match="Nothing was changed"):
            await rebuild(bench)
        assert bench.platter.stores["index"].pairs == before
        bench.platter.stores.pop(NEW_NAME)
        assert (await rebuild(bench, accepts_limbo=True)).is_limbo
        storage = await bench.open()
        assert not storage.is_writable
        assert (await read(storage, 1, 2 * COUNT, 2 * COUNT)).status is Status.UNKNOWN
        assert (await read(storage, 99, 0, 0)).status is Status.UNKNOWN
        assert entries_of(await read(storage, 2, 0, 2)) == {
            number: payload_of(2, number, 90) for number in range(3)
        }
        if harm in (lose_meta, damage_fence):
            assert await add(storage, make_run(DELETED, COUNT, 1)) is Status.DELETED

    simulate(main)


async def test_states_that_a_damaged_branch_page_hides_are_copied(tmp_path: Path) -> None:
    disk = RealDisk(tmp_path)
    storage = await BookieStorage.open(disk, StorageConfig(), rng=random.Random(1))
    adds = [add(storage, make_run(number, 0, 2)) for number in range(200)]
    assert set(await asyncio.gather(*adds)) == {Status.OK}
    await storage.checkpoint()
    await storage.close()
    hidden = hide_a_state(tmp_path / INDEX_NAME / DATA_NAME)
    disk = RealDisk(tmp_path)
    await disk.lock()
    report = await rebuild_index(disk, accepts_limbo=False, on_read=lambda _: None)
    await disk.close()
    assert (report.ledger_count, report.limbo_ledgers, report.runs_added) == (200, 0, 0)
    swap_index(tmp_path, discards_old=True)
    storage = await BookieStorage.open(RealDisk(tmp_path), StorageConfig(), rng=random.Random(1))
    for ledger_id in range(200):
        found = entries_of(await read(storage, ledger_id, 0, 1))
        assert found == {i: payload_of(ledger_id, i) for i in range(2)}, (ledger_id, hidden)
    await storage.close()


async def test_an_index_that_lacks_pages_is_named_and_replaced_with_consent(tmp_path: Path) -> None:
    storage = await BookieStorage.open(RealDisk(tmp_path), StorageConfig(), rng=random.Random(1))
    adds = [add(storage, make_run(number, 0, 2)) for number in range(400)]
    assert set(await asyncio.gather(*adds)) == {Status.OK}
    await storage.close()
    data = tmp_path / INDEX_NAME / DATA_NAME
    os.truncate(data, data.stat().st_size // 8192 * 4096)
    disk = RealDisk(tmp_path)
    with pytest.raises(IndexFileError, match="a page in use ends at"):
        await BookieStorage.open(disk, StorageConfig(), rng=random.Random(1))
    await disk.close()
    report = await check_directory(tmp_path)
    assert [finding for finding in report.findings if "a page in use ends at" in finding]
    disk = RealDisk(tmp_path)
    await disk.lock()
    with pytest.raises(IndexUnprovenError, match="a page in use ends at"):
        await rebuild_index(disk, accepts_limbo=False, on_read=lambda _: None)
    assert (await rebuild_index(disk, accepts_limbo=True, on_read=lambda _: None)).is_limbo
    await disk.close()
    assert swap_index(tmp_path, discards_old=False)
    storage = await BookieStorage.open(RealDisk(tmp_path), StorageConfig(), rng=random.Random(1))
    assert storage.statistics().is_limbo
    for ledger_id in range(400):
        found = entries_of(await read(storage, ledger_id, 0, 1))
        assert found == {i: payload_of(ledger_id, i) for i in range(2)}
    await storage.close()
