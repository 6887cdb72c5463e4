"""Copies of a bookie's directories, and starts on them, with real disks (rule 2.6)."""

import asyncio
import shutil
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bookie.errors import OriginalLivesError, PositionTakenError
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import ReadEntries, Status
from metadata.ids import EntryId, LedgerId
from metadata.paths import bookie_path
from metadata.registry.positions import PositionStore
from tests.support.bookie.bookie_machine import Machine, Running
from tests.support.bookie.wire_client import batch_of, payloads_of
from tests.until import until

ONE = LedgerId(1)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


async def test_a_copy_of_a_running_bookie_is_refused_and_changes_nothing(
    machine: Machine,
) -> None:
    await machine.format()
    bookie = await machine.start()
    copy = machine.root / "b"
    shutil.copytree(machine.root / "a", copy)
    before = _contents(copy)
    with pytest.raises(OriginalLivesError, match=f"{bookie.addresses.host}") as caught:
        await machine.start("b")
    assert str(bookie.addresses.port) in str(caught.value)
    assert _contents(copy) == before
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK, "the original serves on"
    await client.close()
    assert not bookie.process.limbo_reason
    await bookie.stop()


async def test_an_original_that_registers_while_its_copy_opens_is_not_displaced(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    await machine.format()
    bookie = await machine.start()
    shutil.copytree(machine.root / "a", machine.root / "b")
    store, path = machine.store(), bookie_path(bookie.bookie_id)
    open_storage = BookieStorage.open

    async def register_then_open(*arguments: Any, **options: Any) -> BookieStorage:
        bookie.store.resume()
        await until(lambda: machine.server.tree.exists(path))
        return await open_storage(*arguments, **options)

    monkeypatch.setattr(BookieStorage, "open", register_then_open)
    bookie.store.suspend()
    bookie.store.expire()
    async with asyncio.timeout(10.0):
        with pytest.raises(OriginalLivesError, match="This start was counted"):
            await machine.start("b")
    found = await PositionStore(store).get(bookie.bookie_id)
    assert found.record is not None
    assert found.record.incarnation == bookie.process._incarnation
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK, "the original serves on"
    await client.close()
    await bookie.stop()
    await store.aclose()


async def test_a_complete_copy_of_a_stopped_bookie_starts_and_the_second_does_not(
    machine: Machine,
) -> None:
    await machine.format()
    bookie = await machine.start()
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    await client.close()
    await bookie.stop()
    for name in ("b", "c"):
        shutil.copytree(machine.root / "a", machine.root / name)
    first = await machine.start("b")
    assert not first.process.limbo_reason
    client = await first.client(1)
    assert payloads_of(await client.request_entries(_read(0))) == {0: b"payload"}
    assert await client.add(batch_of(1, 1)) is Status.OK
    await client.close()
    with pytest.raises(OriginalLivesError):
        await machine.start("c")
    await first.stop()
    for name in ("c", "a"):
        later = await machine.start(name)
        assert "an old copy" in later.process.limbo_reason
        client = await later.client(1)
        assert (await client.request_entries(_read(1))).status is Status.UNKNOWN
        await client.close()
        await later.stop()


async def test_copy_of_a_killed_bookie_stays_in_limbo(machine: Machine) -> None:
    await machine.format()
    bookie = await machine.start()
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    shutil.copytree(machine.root / "a", machine.root / "b")
    assert await client.add(batch_of(1, 1)) is Status.OK
    await client.close()
    await bookie.cut_off()
    for _ in range(2):
        later = await machine.start("b")
        assert "these files are a copy" in later.process.limbo_reason, "the reason is kept"
        client = await later.client(1, 9)
        assert (await client.request_entries(_read(0))).status is Status.OK
        assert (await client.request_entries(_read(1))).status is Status.UNKNOWN
        assert await client.add(batch_of(9, 0)) is Status.UNKNOWN
        await client.close()
        await later.stop()


async def test_a_log_that_ends_before_the_recorded_position_is_in_limbo(machine: Machine) -> None:
    await machine.format()
    bookie = await machine.start(position_interval_s=0.05)
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    old = _contents(machine.root / "a")
    keeper = bookie.process._keeper
    assert keeper is not None
    old_end = keeper._written.durable_lsn
    assert await client.add(batch_of(1, 1)) is Status.OK
    await client.close()
    await _recorded_after(bookie, old_end)
    await bookie.cut_off()
    for path in _contents(machine.root / "a"):  # as a snapshot of the volume: the same files
        if path in old:
            path.write_bytes(old[path])
        else:
            path.unlink()
    later = await machine.start()
    assert "before the recorded position" in later.process.limbo_reason
    client = await later.client(1)
    assert (await client.request_entries(_read(1))).status is Status.UNKNOWN
    await client.close()
    await later.stop()


async def test_a_start_after_a_kill_replaces_its_registration_at_once(machine: Machine) -> None:
    await machine.format()
    bookie = await machine.start()
    client = await bookie.client(1)
    assert await client.add(batch_of(1, 0)) is Status.OK
    await client.close()
    session = await bookie.cut_off(stays_registered=True)
    async with asyncio.timeout(10.0):  # a start waits up to 30 s for a session
        again = await machine.start()
    assert not again.process.limbo_reason
    client = await again.client(1)
    assert payloads_of(await client.request_entries(_read(0))) == {0: b"payload"}
    await client.close()
    await again.stop()
    assert session is not None
    await session.aclose()


async def test_bookie_stops_answering_after_another_process_writes_its_position(
    machine: Machine,
) -> None:
    await machine.format()
    bookie = await machine.start(position_interval_s=0.05)
    client = await bookie.client(1)
    store = machine.store()
    positions = PositionStore(store)
    found = await positions.get(bookie.bookie_id)
    assert found.record is not None
    other = replace(found.record, incarnation=bytes(16))
    assert await positions.put(bookie.bookie_id, other, found.version) is not None
    with suppress(EOFError):  # on a busy machine, it may have stopped already
        assert await client.add(batch_of(1, 0)) is Status.OK
    async with asyncio.timeout(20.0):
        assert await client.is_closed_by_peer()
        with pytest.raises(PositionTakenError):
            await bookie.process.wait_for_failure()
    await bookie.stop()
    assert (await positions.get(bookie.bookie_id)).record == other, "nothing more is recorded"
    await store.aclose()


def _contents(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


async def _recorded_after(bookie: Running, lsn: int) -> None:
    """Wait until a position beyond `lsn` is recorded."""
    while True:
        record = (await PositionStore(bookie.store).get(bookie.bookie_id)).record
        if record is not None and record.end_lsn > lsn:
            return
        await asyncio.sleep(0.01)


def _read(entry_id: int) -> ReadEntries:
    return ReadEntries(ONE, EntryId(entry_id), EntryId(entry_id), 2**20, fence=False)
