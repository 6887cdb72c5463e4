"""The index's file has its name only once its first pages are durable (LMDB does not see to it)."""

import os
from pathlib import Path

import pytest

from bookie import disk_calls
from bookie.index_lmdb import DATA_NAME, LmdbStore

MAP_BYTES = 2**20


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


async def test_what_a_cut_left_of_the_making_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / f"{DATA_NAME}.new").write_bytes(bytes(4096))
    store = await LmdbStore.open(tmp_path, MAP_BYTES)
    await store.update(lambda transaction: transaction.put(b"key", b"value"))
    assert await store.view(lambda transaction: transaction.get(b"key")) == b"value"
    await store.close()
