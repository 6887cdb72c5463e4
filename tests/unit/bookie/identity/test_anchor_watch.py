"""Tests of a running bookie whose directories are removed, replaced or unmounted (rule 2.9)."""

import asyncio
import shutil
from pathlib import Path

import pytest

from bookie.errors import CookieMissingError, DirectoryLostError
from bookie.files.disk import Disk
from bookie.identity import identity
from bookie.identity.cookie import DIRECTORIES
from bookie.identity.identity import ANCHOR_NAME, read_anchors
from bookie.wire.messages import Status
from metadata.registry.positions import PositionStore
from tests.support.bookie.bookie_machine import Machine, Running
from tests.support.bookie.wire_client import WireClient, batch_of
from tests.until import until


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(identity, "CHECK_INTERVAL_S", 0.05)
    return Machine(tmp_path)


async def _end_of(bookie: Running, client: WireClient) -> DirectoryLostError:
    async with asyncio.timeout(20.0):
        assert await client.is_closed_by_peer()
        with pytest.raises(DirectoryLostError) as caught:
            await bookie.process.wait_for_failure()
    await client.close()
    await bookie.stop()
    return caught.value


async def test_bookie_stops_after_its_directories_were_removed(machine: Machine) -> None:
    await machine.format()
    bookie = await machine.start()
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    shutil.rmtree(machine.root / "a")
    error = await _end_of(bookie, client)
    assert error.directories == DIRECTORIES
    with pytest.raises(CookieMissingError, match="is empty"):
        await machine.start()


@pytest.mark.parametrize("directory", DIRECTORIES)
async def test_bookie_stops_after_one_directory_was_replaced_by_a_copy(
    machine: Machine, directory: str
) -> None:
    await machine.format()
    bookie = await machine.start()
    client = await bookie.client(1)
    path = machine.root / "a" / directory
    shutil.copytree(path, machine.root / "copy")
    path.rename(machine.root / "before")
    (machine.root / "copy").rename(path)
    error = await _end_of(bookie, client)
    assert error.directories == (directory,)
    assert f"{directory}/ was removed, replaced or unmounted" in str(error)


async def test_end_of_a_lost_directory_is_not_an_orderly_stop(machine: Machine) -> None:
    await machine.format()
    bookie = await machine.start()
    client = await bookie.client(1)
    (machine.root / "a" / "log" / ANCHOR_NAME).unlink()
    await _end_of(bookie, client)
    store = machine.store()
    found = await PositionStore(store).get(bookie.bookie_id)
    assert found.record is not None
    assert not found.record.is_orderly
    await store.aclose()


async def test_untouched_directories_are_checked_again_and_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.format()
    checks = 0

    async def counted(disk: Disk) -> tuple[str, ...]:
        nonlocal checks
        checks += 1
        return await read_anchors(disk)

    monkeypatch.setattr(identity, "read_anchors", counted)
    bookie = await machine.start()
    client = await bookie.client(1)
    await until(lambda: checks >= 3)
    assert await client.add(batch_of(1, 0)) is Status.OK
    await client.close()
    await bookie.stop()
