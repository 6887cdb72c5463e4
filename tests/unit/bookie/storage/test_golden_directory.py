"""A bookie's directory from the first release, which was killed during its work: it opens, is
stamped as version 2, and has everything that was acknowledged.

It holds `identity/`, `log/` and `index/` with their cookies. Ledgers 7, 8 and 10 have entries 0..39
in two rewritten segments; 9 is deleted, 8 is fenced, and 7 and 8 have a master key. Behind the
checkpoint are entries 40..49 of 7, 40..41 of 8, and the fence of 11, which was never written to.
The last group is the add to 8. Never generate this file again: a release that cannot open it is
broken.
"""

import asyncio
import random
import tarfile
from pathlib import Path

from bookie.config import KIB, StorageConfig
from bookie.files.disk_real import RealDisk
from bookie.index import index_pages
from bookie.index.index_pages import INDEX_VERSION
from bookie.storage.bookie_storage import BookieStorage
from bookie.storage.opening import INDEX_NAME
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.golden import GOLDEN
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.storage_fixture import KEY, OTHER_KEY, add, entries_of, read
from tests.support.unpacking import unpack

STORED = GOLDEN / "bookie_directory_v1.tar.xz"
ENTRY_BYTES = 60
CONFIG = StorageConfig(
    segment_bytes_max=4 * KIB, index_map_bytes=64 * KIB, reserve_bytes_min=KIB, reserve_share=0.0
)
KEYS = {7: KEY, 8: KEY, 10: None, 11: None}
HIGHEST = {7: 49, 8: 41, 10: 39}


async def open_at(root: Path) -> BookieStorage:
    return await BookieStorage.open(RealDisk(root), CONFIG, rng=random.Random(1))


async def version_of(root: Path) -> int:
    disk = RealDisk(root)
    store = await disk.open_index(INDEX_NAME, CONFIG.index_map_bytes)
    meta = await store.view(index_pages.read_meta)
    await store.close()
    await disk.close()
    assert meta is not None
    return meta.version


async def check(storage: BookieStorage) -> None:
    assert not storage.statistics().is_limbo
    for ledger_id, highest in HIGHEST.items():
        key = KEYS[ledger_id]
        found = entries_of(await read(storage, ledger_id, 0, highest, key=key))
        assert found == {
            entry: payload_of(ledger_id, entry, ENTRY_BYTES) for entry in range(highest + 1)
        }
        beyond = await read(storage, ledger_id, highest + 1, highest + 1, key=key)
        assert beyond.status is Status.NO_SUCH_ENTRY
    assert (await storage.reads.read_lac(LedgerId(7), KEY)).lac >= 37
    assert (await storage.reads.read_lac(LedgerId(7), OTHER_KEY)).status is Status.UNAUTHORIZED
    assert await add(storage, make_run(9, 0, 1)) is Status.DELETED
    for ledger_id in (8, 11):
        batch = make_run(ledger_id, 100, 1)
        assert await add(storage, batch, key=KEYS[ledger_id]) is Status.FENCED


def test_a_directory_of_version_1_opens_and_is_stamped(tmp_path: Path) -> None:
    async def main() -> None:
        with tarfile.open(STORED) as archive:
            unpack(archive, tmp_path)
        assert await version_of(tmp_path) == 1
        storage = await open_at(tmp_path)
        await check(storage)
        assert await add(storage, make_run(12, 0, 1)) is Status.OK
        await storage.close()
        assert await version_of(tmp_path) == INDEX_VERSION
        storage = await open_at(tmp_path)
        await check(storage)
        assert list(entries_of(await read(storage, 12, 0, 0))) == [0]
        await storage.close()

    asyncio.run(main())
