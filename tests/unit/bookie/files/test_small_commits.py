"""Commits that the event loop makes itself (decision 0008), on a real disk."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from bookie.errors import DiskFullError
from bookie.files import disk_calls
from bookie.files.disk import Buffer
from bookie.files.disk_real import INLINE_BYTES_MAX, INLINE_S_MAX, QUICK_COMMITS_MIN, RealDisk
from metadata.cancelling import cancel_and_wait


class Device:
    """Real writes and syncs that report a chosen duration, and record the calling thread."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.error: DiskFullError | None = None
        self.on_loop: list[bool] = []
        self._write_and_sync = disk_calls.write_and_sync

    def write_and_sync(
        self, descriptor: int, what: str, offset: int, buffers: Sequence[Buffer]
    ) -> float:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        self._write_and_sync(descriptor, what, offset, buffers)
        if self.error is not None:
            raise self.error
        return self.seconds


async def test_a_file_is_closed_after_a_commit_whose_caller_was_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another file may get the number of its descriptor, and would be overwritten."""
    may_write, device = threading.Event(), Device()

    def wait_and_write(*given: Any) -> float:
        may_write.wait()
        return device.write_and_sync(*given)

    monkeypatch.setattr(disk_calls, "write_and_sync", wait_and_write)
    disk = RealDisk(tmp_path)
    file = await disk.create("cancelled", background=True)
    committing = asyncio.create_task(file.commit(0, [b"written"]))
    await asyncio.sleep(0)  # it begins
    await cancel_and_wait(committing)
    closing = asyncio.create_task(file.close())
    await asyncio.sleep(0)
    other = await disk.create("other")  # control work, as a close is
    may_write.set()
    await closing
    assert await other.read(0, 7) == b""
    assert (tmp_path / "cancelled").read_bytes() == b"written"
    await other.close()
    await disk.close()


async def test_small_commits_of_a_quick_device_need_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device()
    monkeypatch.setattr(disk_calls, "write_and_sync", device.write_and_sync)
    disk = RealDisk(tmp_path)
    file = await disk.create("log")
    small, large = b"s" * INLINE_BYTES_MAX, b"l" * (INLINE_BYTES_MAX + 1)
    expected = b""

    async def commit(data: bytes, *, seconds: float = 0.0) -> bool:
        nonlocal expected
        device.seconds = seconds
        await file.commit(len(expected), [data[:100], data[100:]])
        expected += data
        return device.on_loop.pop()

    for _ in range(2):
        assert not any([await commit(small) for _ in range(QUICK_COMMITS_MIN)])
        assert await commit(small)
        assert not await commit(large, seconds=1.0)
        assert await commit(small)
        assert await commit(small, seconds=2 * INLINE_S_MAX)  # is slow from now on
        assert not await commit(small, seconds=2 * INLINE_S_MAX)
    assert await file.read(0, len(expected) + 1) == expected
    assert file.size == len(expected)
    await file.close()
    await asyncio.wait_for(disk.close(), 10)


async def test_failed_commit_ends_commits_on_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device()
    monkeypatch.setattr(disk_calls, "write_and_sync", device.write_and_sync)
    disk = RealDisk(tmp_path)
    file = await disk.create("log")
    for number in range(QUICK_COMMITS_MIN + 1):
        await file.commit(number, [b"x"])
    device.error = DiskFullError("log")
    with pytest.raises(DiskFullError):
        await file.commit(100, [b"x"])
    assert device.on_loop[-1]
    device.error = None
    await file.commit(100, [b"x"])
    assert not device.on_loop[-1]
    await file.close()
    await asyncio.wait_for(disk.close(), 10)
