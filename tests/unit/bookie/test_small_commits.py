"""Which commits the event loop makes itself (decision 0008), on a real disk."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from bookie import disk_calls
from bookie.disk import Buffer
from bookie.disk_real import INLINE_BYTES_MAX, INLINE_SYNC_S_MAX, RealDisk


class Device:
    """Writes and syncs for real, in a time of its own choice, and knows who asked."""

    def __init__(self) -> None:
        self.sync_s = 0.0
        self.on_loop: list[bool] = []
        self._write_and_sync = disk_calls.write_and_sync

    def write_and_sync(
        self, descriptor: int, what: str, offset: int, buffers: Sequence[Buffer]
    ) -> float:
        self.on_loop.append(threading.current_thread() is threading.main_thread())
        self._write_and_sync(descriptor, what, offset, buffers)
        return self.sync_s


async def test_small_commits_of_a_quick_device_need_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = Device()
    monkeypatch.setattr(disk_calls, "write_and_sync", device.write_and_sync)
    disk = RealDisk(tmp_path)
    file = await disk.create("log")
    small, large = b"s" * INLINE_BYTES_MAX, b"l" * (INLINE_BYTES_MAX + 1)
    expected = b""
    for sync_s, data in (
        (0.0, small),  # not known to be quick yet
        (0.0, small),
        (0.0, large),
        (2 * INLINE_SYNC_S_MAX, small),  # is slow from here on
        (2 * INLINE_SYNC_S_MAX, small),
        (0.0, small),  # and quick again from here on
        (0.0, small),
    ):
        device.sync_s = sync_s
        await file.commit(len(expected), [data[:100], data[100:]])
        expected += data
    assert device.on_loop == [False, True, False, True, False, False, True]
    assert await file.read(0, len(expected) + 1) == expected
    assert file.size == len(expected)
    await file.close()
    await asyncio.wait_for(disk.close(), 10)
