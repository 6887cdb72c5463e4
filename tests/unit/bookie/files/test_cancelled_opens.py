"""Calls that open something on a real disk, and whose callers are cancelled meanwhile."""

import asyncio
import os
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from bookie.files import index_lmdb
from bookie.files.disk_real import RealDisk
from metadata.cancelling import cancel_and_wait
from tests.until import until

CALLS: dict[str, Callable[[RealDisk], Awaitable[object]]] = {
    "create": lambda disk: disk.create("new"),
    "open": lambda disk: disk.open("old"),
    "lock": lambda disk: disk.lock(),
    "index": lambda disk: disk.open_index("index", 1 << 20),
}
OPENED: dict[type, Callable[[Any], None]] = {
    int: lambda descriptor: os.fstat(descriptor) and None,
    tuple: lambda opened: os.fstat(opened[0]) and None,
    lmdb.Environment: lambda environment: environment.stat() and None,
}


@pytest.mark.real_time
@pytest.mark.parametrize("what", CALLS)
async def test_what_a_cancelled_call_opened_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The call runs to its end on its thread, and no caller can close what it opened."""
    (tmp_path / "old").write_bytes(b"")
    began, may_open, opened = threading.Event(), threading.Event(), []

    def waiting(call: Callable[..., Any]) -> Callable[..., Any]:
        def wait_and_open(*arguments: Any) -> Any:
            began.set()
            may_open.wait()
            opened.append(call(*arguments))
            return opened[0]

        return wait_and_open

    disk = RealDisk(tmp_path)
    for name in ("_create", "_open", "_take_lock"):
        monkeypatch.setattr(disk, name, waiting(getattr(disk, name)))
    environments = waiting(index_lmdb._open_environment)
    monkeypatch.setattr(index_lmdb, "_open_environment", environments)
    calling = asyncio.ensure_future(CALLS[what](disk))
    await until(began.is_set)
    calling.cancel()
    may_open.set()
    await cancel_and_wait(calling)
    await disk.close()
    with pytest.raises((OSError, lmdb.Error)):
        OPENED[type(opened[0])](opened[0])
