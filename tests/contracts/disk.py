"""Contract of `Disk`.

`tests/unit/bookie/files/test_disk_contract.py` runs it on the real and the simulated disk.
"""

import asyncio

import pytest

from bookie.errors import DirectoryLockedError
from bookie.files.disk import Disk, StoreTransaction


class DiskContract:
    """One coroutine per promise. Each gets new disks on the same directory."""

    async def check_commits_are_read_back(self, disk: Disk, _: Disk) -> None:
        file = await disk.create("log/a")
        await file.commit(0, [b"head", bytearray(b"er"), memoryview(b"!")])
        await file.commit(7, [b"x" * 100_000, b"tail"])
        assert file.size == 100_011
        assert bytes(await file.read(0, 8)) == b"header!x"
        assert bytes(await file.read(100_005, 100)) == b"x" * 2 + b"tail"
        assert bytes(await file.read(200_000, 10)) == b""
        await file.close()

    async def check_many_small_buffers(self, disk: Disk, _other: Disk) -> None:
        file = await disk.create("log/a")
        buffers = [bytes([i % 256]) * (i % 7) for i in range(5_000)]
        large = [b"y" * 20_000 for _ in range(1_500)]
        await file.commit(0, buffers)
        await file.commit(len(b"".join(buffers)), large)
        whole = b"".join(buffers + large)
        assert bytes(await file.read(0, len(whole) + 1)) == whole
        await file.close()

    async def check_read_nowait_is_right_or_none(self, disk: Disk, _: Disk) -> None:
        file = await disk.create("log/a")
        await file.commit(0, [b"0123456789"])
        for _attempt in range(20):
            assert file.read_nowait(2, 3) in (None, b"234")
            assert file.read_nowait(8, 10) in (None, b"89")
            assert file.read_nowait(10, 10) in (None, b"")
        await file.close()

    async def check_truncate(self, disk: Disk, _: Disk) -> None:
        file = await disk.create("log/a")
        await file.commit(0, [b"0123456789"])
        await file.truncate(4)
        assert file.size == 4
        assert bytes(await file.read(0, 10)) == b"0123"
        await file.commit(4, [b"x"])
        assert bytes(await file.read(0, 10)) == b"0123x"
        await file.close()

    async def check_names(self, disk: Disk, _: Disk) -> None:
        assert await disk.list_names("log") == []
        for name in ("log/b", "log/a"):
            made = await disk.create(name)
            await made.close()
        await disk.rename("log/b", "log/c")
        await disk.sync_directory("log")
        assert await disk.list_names("log") == ["a", "c"]
        await disk.unlink("log/a")
        assert await disk.list_names("log") == ["c"]
        with pytest.raises(FileNotFoundError):
            await disk.open("log/a")
        file = await disk.open("log/c")
        assert file.size == 0
        await file.close()

    async def check_preallocated_bytes_are_zero(self, disk: Disk, _: Disk) -> None:
        file = await disk.create("log/a", preallocate_bytes=65_536)
        assert file.size in (0, 65_536)
        await file.commit(0, [b"abc"])
        assert bytes(await file.read(0, 65_536)).rstrip(b"\0") == b"abc"
        await file.truncate(3)
        assert bytes(await file.read(0, 65_536)) == b"abc"
        await file.close()

    async def check_a_removed_file_can_still_be_read(self, disk: Disk, _: Disk) -> None:
        file = await disk.create("log/a")
        await file.commit(0, [b"abc"])
        await disk.unlink("log/a")
        assert bytes(await file.read(0, 3)) == b"abc"
        await file.close()

    async def check_one_process_per_directory(self, disk: Disk, other: Disk) -> None:
        await disk.lock()
        with pytest.raises(DirectoryLockedError):
            await other.lock()
        await disk.close()
        await other.lock()

    async def check_space(self, disk: Disk, _: Disk) -> None:
        await disk.lock()
        space = await disk.space()
        assert 0 < space.free_bytes <= space.total_bytes

    async def check_the_index_orders_and_finds(self, disk: Disk, _: Disk) -> None:
        store = await disk.open_index("index", 1 << 20)

        def fill(transaction: StoreTransaction) -> None:
            for number in (5, 1, 3):
                transaction.put(b"k%d" % number, b"v%d" % number)
            transaction.put(b"gone", b"")
            transaction.delete(b"gone")
            transaction.delete(b"never there")

        await store.update(fill)
        assert await store.view(lambda t: t.get(b"k3")) == b"v3"
        assert await store.view(lambda t: t.get(b"gone")) is None
        assert await store.view(lambda t: t.seek(b"k2")) == (b"k3", b"v3")
        assert await store.view(lambda t: t.seek(b"k6")) is None
        assert await store.view(lambda t: t.before(b"k3")) == (b"k1", b"v1")
        assert await store.view(lambda t: t.before(b"k9")) == (b"k5", b"v5")
        assert await store.view(lambda t: t.before(b"k1")) is None
        assert await store.view(lambda t: t.scan(b"k2", 1)) == [(b"k3", b"v3")]
        assert len(await store.view(lambda t: t.scan(b"", 10))) == 3
        await store.close()

    async def check_a_failed_transaction_leaves_nothing(self, disk: Disk, _: Disk) -> None:
        store = await disk.open_index("index", 1 << 20)

        def fail(transaction: StoreTransaction) -> None:
            transaction.put(b"a", b"1")
            raise KeyError("a")

        with pytest.raises(KeyError):
            await store.update(fail)
        assert await store.view(lambda t: t.scan(b"", 10)) == []
        await store.close()

    async def check_the_index_grows_and_is_kept(self, disk: Disk, _: Disk) -> None:
        store = await disk.open_index("index", 1 << 20)

        def fill(transaction: StoreTransaction) -> None:
            for number in range(20_000):
                transaction.put(number.to_bytes(4, "big"), b"v" * 100)

        await store.update(fill)
        await store.close()
        store = await disk.open_index("index", 1 << 20)
        assert await store.view(lambda t: t.before(b"\xff")) == (
            (19_999).to_bytes(4, "big"),
            b"v" * 100,
        )
        await asyncio.gather(*[store.view(lambda t: t.get(b"x")) for _attempt in range(10)])
        await store.close()


CHECKS = [name for name in vars(DiskContract) if name.startswith("check_")]
