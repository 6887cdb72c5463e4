"""Starts on a page cache with unsynced bytes: a storage confirms nothing that a power loss can
remove (rule 2.5).
"""

import asyncio
import dataclasses
import random

import pytest

from bookie.errors import BookieError
from bookie.log import records
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.loop import run_simulation, simulation_loop
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.machine import Machine, begin, fence, leave_unsynced
from tests.support.bookie.storage_fixture import SMALL, add, entries_of, read


@pytest.mark.parametrize("how", ["kill", "failed sync"])
@pytest.mark.parametrize("starts", [1, 3])
def test_replayed_entry_survives_a_power_loss(how: str, starts: int) -> None:
    machine = Machine()

    async def write(storage: BookieStorage, faults: DiskFaults) -> None:
        await begin(storage)
        await leave_unsynced(faults, how, add(storage, make_run(7, 2, 2)))

    async def repeat(storage: BookieStorage, _faults: DiskFaults) -> Status:
        return await add(storage, make_run(7, 2, 2))

    async def read_back(storage: BookieStorage, _faults: DiskFaults) -> dict[int, bytes]:
        assert not storage.statistics().is_limbo
        return entries_of(await read(storage, 7, 0, 3))

    machine.live(write)
    for _ in range(starts):
        assert machine.live(repeat) is Status.OK
    machine.platter.lose_power()
    assert machine.live(read_back) == {entry: payload_of(7, entry) for entry in range(4)}


@pytest.mark.parametrize("how", ["kill", "failed sync"])
@pytest.mark.parametrize("starts", [1, 3])
def test_replayed_fence_survives_a_power_loss(how: str, starts: int) -> None:
    machine = Machine()

    async def write(storage: BookieStorage, faults: DiskFaults) -> None:
        await begin(storage)
        await leave_unsynced(faults, how, fence(storage, 8))

    async def repeat(storage: BookieStorage, _faults: DiskFaults) -> Status:
        return await fence(storage, 8)

    async def read_back(storage: BookieStorage, _faults: DiskFaults) -> tuple[Status, bool]:
        return await add(storage, make_run(8, 2, 1)), storage.statistics().is_limbo

    machine.live(write)
    for _ in range(starts):
        assert machine.live(repeat) is Status.OK
    machine.platter.lose_power()
    assert machine.live(read_back) == (Status.FENCED, False)


def test_fence_of_a_ledger_without_entries_is_replayed() -> None:
    machine = Machine()

    async def write(storage: BookieStorage, _faults: DiskFaults) -> None:
        await begin(storage)
        assert await fence(storage, 9) is Status.OK

    async def add_late(storage: BookieStorage, _faults: DiskFaults) -> Status:
        return await add(storage, make_run(9, 0, 1))

    machine.live(write)
    assert machine.live(add_late) is Status.FENCED


def test_copied_tail_is_read_from_the_copy() -> None:
    machine = Machine()

    async def write(storage: BookieStorage, faults: DiskFaults) -> None:
        await begin(storage)
        await leave_unsynced(faults, "failed sync", add(storage, make_run(7, 2, 2)))

    async def read_back(storage: BookieStorage, _faults: DiskFaults) -> dict[int, bytes]:
        machine.platter.evict()
        return entries_of(await read(storage, 7, 2, 3))

    machine.live(write)
    assert list(machine.live(read_back)) == [2, 3]


def test_an_orderly_stop_leaves_nothing_to_copy() -> None:
    machine = Machine()

    async def write(storage: BookieStorage, _faults: DiskFaults) -> None:
        await begin(storage)
        await storage.close()

    async def read_back(storage: BookieStorage, _faults: DiskFaults) -> int:
        assert list(entries_of(await read(storage, 7, 0, 1))) == [0, 1]
        await storage.close()
        return storage.statistics().log_end

    machine.live(write)
    names = machine.log_names()
    assert machine.live(read_back) == machine.live(read_back)
    assert machine.log_names() == names


async def check_promises(
    storage: BookieStorage, entries: dict[int, None], fenced: dict[int, None]
) -> None:
    assert not storage.statistics().is_limbo
    for entry in entries:
        assert list(entries_of(await read(storage, 7, entry, entry))) == [entry]
    for ledger_id in fenced:
        assert await add(storage, make_run(ledger_id, 0, 1)) is Status.FENCED


@pytest.mark.parametrize("seed", range(40))
def test_a_crash_at_any_moment_of_a_start_loses_nothing(seed: int) -> None:
    """Entries are acknowledged, the process dies, and kills and power cuts interrupt starts."""

    async def main() -> None:
        loop, rng, platter = simulation_loop(), random.Random(f"starts {seed}"), Platter()
        config = dataclasses.replace(SMALL, segment_bytes_max=rng.choice((300, 4_000)))
        faults = DiskFaults(preallocates=rng.random() < 0.5)
        promised: dict[int, None] = {}
        fenced: dict[int, None] = {}

        async def process(count: int) -> None:
            disk = CrashableDisk(platter, rng, faults)
            storage = await BookieStorage.open(disk, config, rng=rng)
            await check_promises(storage, promised, fenced)
            for number in range(count):
                entry = rng.randrange(40)
                if await add(storage, make_run(7, entry, 1)) is Status.OK:
                    promised[entry] = None
                if number % 3 == 0:
                    ledger_id = 10 + rng.randrange(20)
                    if await fence(storage, ledger_id) is Status.OK:
                        fenced[ledger_id] = None
                if rng.random() < 0.1:
                    await storage.checkpoint()

        for _ in range(12):
            faults.failing_syncs = rng.random() < 0.2
            node, task = loop.spawn(process(rng.choice((0, 3, 30))))
            await asyncio.wait([task], timeout=rng.choice((0.05, 0.3, 1.0, 5.0)) * rng.random())
            if task.done():
                error = task.exception()
                assert error is None or isinstance(error, BookieError), error
            loop.kill(node)
            faults.failing_syncs = 0
            if rng.random() < 0.6:
                platter.kill(rng)
            else:
                platter.crash(rng)
        await process(0)

    run_simulation(main, seed)


@pytest.mark.parametrize("is_retried", [False, True])
def test_a_sync_without_room_ends_the_use_of_its_file(is_retried: bool) -> None:
    """The second sync of a file whose pages were lost would succeed and prove nothing."""
    machine = Machine()

    async def write(storage: BookieStorage, faults: DiskFaults) -> None:
        await begin(storage)
        faults.full_syncs = 1
        assert await add(storage, make_run(7, 2, 2)) is Status.READ_ONLY
        names = machine.log_names()
        if is_retried:
            assert await add(storage, make_run(7, 2, 2), recovery=True) is Status.OK
            assert len(machine.log_names()) == len(names) + 1, "the same file was used again"
        assert await add(storage, make_run(8, 2, 1), recovery=True) is Status.OK

    async def read_back(storage: BookieStorage, _faults: DiskFaults) -> tuple[list[int], list[int]]:
        assert not storage.statistics().is_limbo
        seven = list(entries_of(await read(storage, 7, 0, 3)))
        return seven, list(entries_of(await read(storage, 8, 0, 2)))

    machine.live(write)
    assert machine.live(read_back)[1] == [0, 1, 2]
    machine.platter.lose_power()
    assert machine.live(read_back) == ([0, 1, 2, 3] if is_retried else [0, 1], [0, 1, 2])


def test_bytes_that_a_later_head_leaves_out_are_cut_and_never_read() -> None:
    machine = Machine()

    async def write(storage: BookieStorage, faults: DiskFaults) -> int:
        await begin(storage)
        faults.full_syncs = 1
        assert await add(storage, make_run(7, 2, 2)) is Status.READ_ONLY
        end = storage.statistics().log_end
        assert await add(storage, make_run(8, 2, 1), recovery=True) is Status.OK
        return end

    async def read_back(storage: BookieStorage, _faults: DiskFaults) -> Status:
        return (await read(storage, 7, 2, 3)).status

    end = machine.live(write)
    first = machine.log_names()[0]
    assert len(machine.platter.names[first].current) > records.offset_of(end)
    assert machine.live(read_back) is Status.NO_SUCH_ENTRY
    assert len(machine.platter.names[first].current) == records.offset_of(end)


def test_number_of_a_lost_segment_is_not_reused() -> None:
    machine = Machine()

    async def write(storage: BookieStorage, _faults: DiskFaults) -> None:
        for entry in range(6):
            assert await add(storage, make_run(7, entry, 1, size=300)) is Status.OK
        await storage.checkpoint()

    async def resume(storage: BookieStorage, _faults: DiskFaults) -> None:
        assert storage.statistics().is_limbo
        batch = make_run(7, 6, 1, size=300)
        assert await add(storage, batch, recovery=True) is Status.OK

    async def read_back(storage: BookieStorage, _faults: DiskFaults) -> Status:
        return (await read(storage, 7, 6, 6)).status

    machine.live(write)
    last = machine.log_names()[-1]
    for names in (machine.platter.names, machine.platter.durable_names):
        del names[last]
    machine.live(resume)
    assert machine.log_names()[-1] > last
    assert machine.live(read_back) is Status.OK


def test_numbers_are_above_every_segment_that_the_index_names() -> None:
    """A rewritten segment may have a higher number than the one that the mark names."""
    machine = Machine(dataclasses.replace(SMALL, clean_live_share_max=2.0))

    async def write(storage: BookieStorage, _faults: DiskFaults) -> None:
        for entry in range(30):
            assert await add(storage, make_run(7, entry, 1, size=300)) is Status.OK
        await storage.checkpoint()
        await storage.clean()
        await storage.checkpoint()

    async def resume(storage: BookieStorage, _faults: DiskFaults) -> None:
        assert await add(storage, make_run(9, 0, 1), recovery=True) is Status.OK

    machine.live(write)
    lost = [name for name in machine.log_names() if name.endswith(".clean")]
    assert lost
    assert lost[-1] == machine.log_names()[-1]
    for names in (machine.platter.names, machine.platter.durable_names):
        for name in lost:
            del names[name]
    machine.live(resume)
    assert machine.log_names()[-1] > lost[-1]
