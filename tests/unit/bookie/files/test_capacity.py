"""A real directory with a limit on its bytes."""

import asyncio
from pathlib import Path

import pytest

from bookie.errors import DiskFullError
from bookie.files import disk_real
from bookie.files.disk_real import RealDisk

LIMIT = 100_000


def test_writes_beyond_the_limit_are_refused_until_space_is_freed(tmp_path: Path) -> None:
    async def main() -> None:
        disk = RealDisk(tmp_path, LIMIT)
        before = await disk.space("log")
        assert before.total_bytes == LIMIT
        file = await disk.create("log/a")
        await file.commit(0, [bytes(60_000)])
        other = await disk.create("log/b")
        with pytest.raises(DiskFullError):
            await other.commit(0, [bytes(60_000)])
        assert other.size == 0
        await other.commit(0, [bytes(20_000)])
        assert before.free_bytes - (await disk.space("log")).free_bytes in range(80_000, 95_000)
        await disk.unlink("log/a")
        await other.commit(20_000, [bytes(60_000)])
        await other.truncate(0)
        await other.commit(0, [bytes(80_000)])
        await file.close()
        await other.close()
        await disk.close()

    asyncio.run(main())


def test_the_spaces_of_all_directories_take_one_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    walks: list[Path] = []

    def measure(root: Path) -> int:
        walks.append(root)
        return 1000

    monkeypatch.setattr(disk_real, "measure_tree", measure)

    async def main() -> None:
        disk = RealDisk(tmp_path, LIMIT)
        free = [(await disk.space(each)).free_bytes for each in ("log", "index", "identity")]
        assert (free, walks) == ([LIMIT - 1000] * 3, [tmp_path])
        await disk.close()

    asyncio.run(main())


def test_existing_files_count(tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "log").mkdir()
        (tmp_path / "log" / "old").write_bytes(bytes(LIMIT))
        disk = RealDisk(tmp_path, LIMIT)
        assert (await disk.space()).free_bytes == 0
        file = await disk.create("log/new")
        with pytest.raises(DiskFullError):
            await file.commit(0, [b"x"])
        await file.close()
        await disk.close()

    asyncio.run(main())
