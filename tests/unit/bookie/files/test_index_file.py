"""The index's file: it gets its name after its first pages are durable (LMDB does not ensure that),
views do not wait for updates, its map grows only between transactions, and on a separate disk it
leaves room for a start.
"""

import asyncio
import itertools
import os
import shutil
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from bookie.errors import DiskFullError
from bookie.files import disk_calls
from bookie.files.disk import StoreTransaction
from bookie.files.index_lmdb import DATA_NAME, DELETION_SHARE, START_BYTES, LmdbStore

MAP_BYTES = 2**20
DEADLINE_S = 30.0


async def test_the_first_pages_are_durable_before_the_file_has_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[tuple[int, bool]] = []

    def sync(descriptor: int) -> None:
        held = os.fstat(descriptor).st_size
        synced.append((held, (tmp_path / DATA_NAME).exists()))

    monkeypatch.setattr(disk_calls, "sync", sync)
    store = await LmdbStore.open(tmp_path, MAP_BYTES)
    assert [(held > 0, named) for held, named in synced] == [(True, False)]
    await store.close()
    await (await LmdbStore.open(tmp_path, MAP_BYTES)).close()
    assert len(synced) == 1


async def test_partly_created_store_is_created_again(tmp_path: Path) -> None:
    (tmp_path / f"{DATA_NAME}.new").write_bytes(bytes(4096))
    store = await LmdbStore.open(tmp_path, MAP_BYTES)
    await store.update(lambda transaction: transaction.put(b"key", b"value"))
    assert await store.view(lambda transaction: transaction.get(b"key")) == b"value"
    await store.close()


async def test_a_view_does_not_wait_for_an_update(tmp_path: Path) -> None:
    store = await LmdbStore.open(tmp_path, MAP_BYTES)
    await store.update(lambda transaction: transaction.put(b"key", b"old"))
    is_updating, may_commit = threading.Event(), threading.Event()

    def update(transaction: StoreTransaction) -> None:
        transaction.put(b"key", b"new")
        is_updating.set()
        may_commit.wait()

    updating = asyncio.ensure_future(store.update(update))
    await asyncio.to_thread(is_updating.wait)
    try:
        view = store.view(lambda transaction: transaction.get(b"key"))
        assert await asyncio.wait_for(view, DEADLINE_S) == b"old"
    finally:
        may_commit.set()
    await updating
    assert await store.view(lambda transaction: transaction.get(b"key")) == b"new"
    await store.close()


@pytest.mark.real_time
async def test_the_map_grows_only_between_views(tmp_path: Path) -> None:
    store = await LmdbStore.open(tmp_path, MAP_BYTES)
    values = {b"%06d" % number: bytes([number % 251]) * 1000 for number in range(8_000)}
    await store.update(lambda transaction: transaction.put(b"first", b"value"))
    is_viewing, may_end = threading.Event(), threading.Event()

    def view(transaction: StoreTransaction) -> bytes | None:
        is_viewing.set()
        may_end.wait()
        return transaction.get(b"first")

    def update(transaction: StoreTransaction) -> None:
        for key, value in values.items():
            transaction.put(key, value)

    viewing = asyncio.ensure_future(store.view(view))
    await asyncio.to_thread(is_viewing.wait)
    updating = asyncio.ensure_future(store.update(update))
    await asyncio.wait([updating], timeout=0.5)
    assert not updating.done(), "the map moved below a view"
    may_end.set()
    assert await viewing == b"value"
    await updating
    pairs = await store.view(lambda transaction: transaction.scan(b"0", len(values)))
    assert dict(pairs) == values
    await store.close()


async def test_store_on_a_separate_disk_leaves_room_for_deletions_and_a_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk_bytes = 2**21

    def free_bytes() -> int:
        return disk_bytes - (tmp_path / DATA_NAME).stat().st_size

    def usage(_: Path) -> SimpleNamespace:
        return SimpleNamespace(total=disk_bytes, free=free_bytes())

    numbers = itertools.count()

    def put_some(transaction: StoreTransaction) -> None:
        for number in itertools.islice(numbers, 20):
            transaction.put(b"%06d" % number, bytes(1000))

    async def fill(*, keeps_room: bool) -> None:
        with pytest.raises(DiskFullError):
            for _ in range(1000):
                await store.update(put_some, keeps_room=keeps_room)

    monkeypatch.setattr(shutil, "disk_usage", usage)
    store = await LmdbStore.open(tmp_path, MAP_BYTES, has_own_disk=True)
    await fill(keeps_room=True)
    assert free_bytes() >= START_BYTES + disk_bytes // DELETION_SHARE
    for number in range(200):
        key = b"%06d" % number
        await store.update(lambda transaction, key=key: transaction.delete(key))  # type: ignore[misc]
    await store.update(put_some, keeps_room=True)  # in the pages that the deletions freed
    await fill(keeps_room=False)
    assert free_bytes() >= START_BYTES
    await store.close()
    store = await LmdbStore.open(tmp_path, MAP_BYTES, has_own_disk=True)
    await fill(keeps_room=False)
    assert free_bytes() >= START_BYTES
    await store.close()
