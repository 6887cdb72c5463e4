"""A complete bookie whose disk hangs: readiness, answers and registration."""

import asyncio
import threading
from collections.abc import Sequence
from pathlib import Path

import aiohttp
import pytest

from bookie.files import disk_calls
from bookie.files.disk import Buffer
from bookie.wire.messages import Status
from metadata.errors import NodeNotFoundError
from metadata.paths import bookie_path
from tests.support.bookie.bookie_machine import Machine
from tests.support.bookie.wire_client import batch_of


@pytest.mark.real_time
async def test_bookie_is_not_registered_while_its_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(tmp_path)
    await machine.format()
    bookie = await machine.start(disk_hung_s=0.4)
    client, other = await bookie.client(1), await bookie.client(2)
    may_write = threading.Event()
    write_and_sync = disk_calls.write_and_sync

    def write_when_told(
        descriptor: int, what: str, offset: int, buffers: Sequence[Buffer]
    ) -> float:
        if what.endswith(".log"):  # not the reserve, which is written in the background
            may_write.wait()
        return write_and_sync(descriptor, what, offset, buffers)

    async def missing() -> str | None:
        async with aiohttp.ClientSession(bookie.admin_url) as http, http.get("/readyz") as answer:
            found: dict[str, str] = await answer.json()
            return found.get("missing")

    async def is_registered() -> bool:
        try:
            await bookie.store.get(bookie_path(bookie.bookie_id), fresh=True)
        except NodeNotFoundError:
            return False
        return True

    assert await is_registered()
    assert await missing() is None
    monkeypatch.setattr(disk_calls, "write_and_sync", write_when_told)
    try:
        adding = asyncio.ensure_future(client.add(batch_of(1, 0)))
        while await is_registered():  # noqa: ASYNC110 - nothing reports it
            await asyncio.sleep(0.02)
        assert "a write to log/00000001.log has not returned" in str(await missing())
        assert await other.add(batch_of(2, 0)) is Status.READ_ONLY
        assert not adding.done()
    finally:
        may_write.set()
    assert await adding is Status.OK
    while not await is_registered():  # noqa: ASYNC110 - nothing reports it
        await asyncio.sleep(0.02)
    assert await missing() is None
    assert await other.add(batch_of(2, 0)) is Status.OK
    await client.close()
    await other.close()
    await bookie.stop()
