"""Limits of a start: its memory, its disk space, and its record of damage (rules 2.4 and 2.5)."""

import asyncio
import dataclasses

import pytest

from bookie.index import index_pages
from bookie.index.index_pages import INDEX_VERSION
from bookie.log import records
from bookie.log.recovery_scan import find_segments
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from tests.simulation.disk import CrashableDisk, DiskFaults
from tests.simulation.index_store import MemoryTransaction
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.bookie.batches import make_run
from tests.support.bookie.machine import Machine, begin, fence, leave_unsynced
from tests.support.bookie.storage_fixture import SMALL, add, entries_of, read


@pytest.mark.parametrize("has_mark", [True, False])
def test_start_makes_checkpoints_during_replay(has_mark: bool) -> None:
    """The memory of a start is limited, also when all of the disk must be read again."""
    machine = Machine()
    ids = range(400)

    async def write(storage: BookieStorage, _faults: DiskFaults) -> None:
        for entry in ids:
            assert await add(storage, make_run(5 + entry % 3, entry, 1)) is Status.OK
        await fence(storage, 9)
        await storage.delete_ledger(LedgerId(6))

    async def read_back(storage: BookieStorage, _faults: DiskFaults) -> int:
        in_memory = storage.statistics().records_since_checkpoint
        assert storage.statistics().is_limbo is not has_mark
        for entry in ids:
            result = await read(storage, 5 + entry % 3, entry, entry)
            expected = Status.DELETED if entry % 3 == 1 else Status.OK
            assert result.status is expected
        assert await add(storage, make_run(9, 0, 1)) is Status.FENCED
        return in_memory

    machine.live(write)
    if not has_mark:
        for store in machine.platter.stores.values():
            store.assign(b"m", None)
            store.assign(index_pages.state_key(5), b"damaged")
    machine.config = dataclasses.replace(SMALL, checkpoint_records=50)
    assert machine.live(read_back) < 150
    assert machine.live(read_back) < 150


def test_start_interrupted_behind_a_loss_still_ends_in_limbo() -> None:
    """A checkpoint during the start passes the damage, so the next start does not see it."""
    machine = Machine(dataclasses.replace(SMALL, segment_bytes_max=64 * 1024))

    async def write(storage: BookieStorage, _faults: DiskFaults) -> None:
        for entry in range(100):
            assert await add(storage, make_run(5, entry, 1)) is Status.OK
        for ledger_id in range(20, 60):
            assert await add(storage, make_run(ledger_id, 3, 1)) is Status.OK

    machine.live(write)
    name = machine.log_names()[0]
    machine.platter.flip_bit(name, 8 * 400)
    machine.config = dataclasses.replace(machine.config, checkpoint_records=30)

    async def main() -> None:
        loop = simulation_loop()
        for seconds in (0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.14):
            disk = CrashableDisk(machine.platter, machine.rng, DiskFaults())
            node, _ = loop.spawn(BookieStorage.open(disk, machine.config, rng=machine.rng))
            await asyncio.sleep(seconds)
            loop.kill(node)
            machine.platter.generation += 1
            machine.platter.locked = False

    run_simulation(main, 1)

    async def read_back(storage: BookieStorage, _faults: DiskFaults) -> None:
        for ledger_id in (5, 20, 40, 59):
            result = await read(storage, ledger_id, 1_000, 1_000)
            assert result.status is Status.UNKNOWN, f"ledger {ledger_id}"

    machine.live(read_back)


def test_start_commits_to_the_index_before_it_relies_on_it() -> None:
    """A commit that a dead process left in the page cache is durable once the start is over."""
    machine = Machine()

    async def write(storage: BookieStorage, _faults: DiskFaults) -> None:
        await begin(storage)
        await storage.checkpoint()

    async def nothing(_storage: BookieStorage, _faults: DiskFaults) -> None:
        return

    machine.live(write)
    (store,) = machine.platter.stores.values()
    left_behind = [(b"n", store.pairs.get(b"n"))]
    store.assign(b"n", b"visible")
    store._unproved.append(left_behind)
    machine.live(nothing)
    machine.platter.lose_power()
    assert store.pairs.get(b"n") == b"visible"
    meta = index_pages.read_meta(MemoryTransaction(store))
    assert meta is not None
    assert meta.version == INDEX_VERSION


def test_damage_is_remembered_and_its_segment_is_kept_while_it_is_named() -> None:
    machine = Machine(dataclasses.replace(SMALL, clean_live_share_max=2.0))

    async def write(storage: BookieStorage, _faults: DiskFaults) -> None:
        for entry in range(30):
            assert await add(storage, make_run(7, entry, 1, size=300)) is Status.OK

    async def checkpoint(storage: BookieStorage, _faults: DiskFaults) -> None:
        assert storage.statistics().is_limbo
        await storage.checkpoint()

    async def clean(storage: BookieStorage, _faults: DiskFaults) -> None:
        assert storage.statistics().damaged_segments == 1
        assert storage.statistics().damaged_segment_bytes == len(before)
        await storage.clean()
        await storage.clean()

    async def delete(storage: BookieStorage, faults: DiskFaults) -> None:
        await storage.delete_ledger(LedgerId(7))
        await storage.checkpoint()
        await clean(storage, faults)
        assert storage.statistics().damaged_segments == 0

    machine.live(write)
    damaged = machine.log_names()[1]
    machine.platter.flip_bit(damaged, 8 * 1000)
    before = bytes(machine.platter.names[damaged].current)
    machine.live(checkpoint)
    machine.live(clean)
    assert damaged in machine.platter.names
    assert bytes(machine.platter.names[damaged].current) == before
    machine.live(delete)
    assert damaged not in machine.platter.names
    assert len(machine.log_names()) < 9, "the others were cleaned"


def test_start_on_a_full_disk_uses_the_room_of_the_reserve() -> None:
    machine = Machine()

    async def write(storage: BookieStorage, faults: DiskFaults) -> None:
        background = asyncio.ensure_future(storage.background())
        await asyncio.sleep(3)
        background.cancel()
        await begin(storage)
        await leave_unsynced(faults, "kill", add(storage, make_run(7, 2, 2)))

    machine.live(write)
    assert "log/reserve" in machine.platter.names
    used = sum(len(content.current) for content in machine.platter.names.values())

    async def main() -> list[int]:
        faults = DiskFaults(capacity_bytes=used)
        disk = CrashableDisk(machine.platter, machine.rng, faults)
        storage = await BookieStorage.open(disk, machine.config, rng=machine.rng)
        return list(entries_of(await read(storage, 7, 0, 3)))

    assert run_simulation(main, 1) == [0, 1, 2, 3]


def test_heads_say_where_the_log_before_ended() -> None:
    machine = Machine()

    async def write(storage: BookieStorage, _faults: DiskFaults) -> None:
        for entry in range(30):
            assert await add(storage, make_run(7, entry, 1, size=300)) is Status.OK

    machine.live(write)

    async def main() -> None:
        disk = CrashableDisk(machine.platter, machine.rng)
        segments = await find_segments(disk)
        before = 0
        for number, segment in sorted(segments.by_number.items()):
            assert segment.predecessor_end == before
            before = records.lsn_of(number, segment.size)

    run_simulation(main, 1)
