"""Power loss at each moment of a cleaning: moved runs are read at the place in the index."""

import asyncio
import dataclasses

from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from tests.simulation.disk import DiskFaults, Platter
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.machine import Machine
from tests.support.bookie.storage_fixture import SMALL, add, entries_of, read

ENTRIES = 20
LOOK_EVERY_S = 0.004
"""Less than the duration of most steps of a simulated disk."""


def test_a_power_cut_at_any_moment_of_a_cleaning_loses_nothing() -> None:
    """In particular: the old segment may be removed only after the new one's name is durable."""
    machine = Machine(dataclasses.replace(SMALL, clean_live_share_max=2.0))
    moments: list[Platter] = []

    async def clean(storage: BookieStorage, _faults: DiskFaults) -> None:
        for entry in range(ENTRIES):
            assert await add(storage, make_run(7, entry, 1, size=300)) is Status.OK
        await storage.checkpoint()
        cleaning = asyncio.ensure_future(storage.clean())
        while not cleaning.done():
            await asyncio.sleep(LOOK_EVERY_S)
            moments.append(machine.platter.copied())
        assert await cleaning > 0

    async def read_back(storage: BookieStorage, _faults: DiskFaults) -> dict[int, bytes]:
        assert not storage.statistics().is_limbo
        return entries_of(await read(storage, 7, 0, ENTRIES - 1))

    machine.live(clean)
    assert any(name.endswith(".clean") for name in machine.log_names())
    for moment in moments:
        moment.lose_power()
        machine.platter = moment
        assert machine.live(read_back) == {
            entry: payload_of(7, entry, 300) for entry in range(ENTRIES)
        }
