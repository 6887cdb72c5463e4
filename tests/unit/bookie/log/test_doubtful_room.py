"""A file system that reports room and refuses writes: a quota, no inodes, a full thin volume."""

import asyncio
import contextlib

from bookie.files.disk import DiskSpace
from bookie.log.reserve import (
    QUIET_S,
    TRIAL_NAME,
    WAIT_S_MAX,
    WAIT_S_MIN,
    DoubtfulRoom,
)
from bookie.storage.bookie_storage import BookieStorage
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from quire.server.overriding import override
from tests.simulation.disk import CrashableDisk
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import KEY, Bench, add, simulate


class QuotaDisk(CrashableDisk):
    """A disk whose file system reports much room, whatever is left."""

    @override
    async def space(self, directory: str = "") -> DiskSpace:
        del directory
        return DiskSpace(10**12, 9 * 10**11)


def test_a_disk_that_refuses_although_it_reports_room_stays_read_only() -> None:
    async def main(bench: Bench) -> None:
        bench.faults.capacity_bytes = 60_000
        disk = QuotaDisk(bench.platter, bench.rng, bench.faults)
        storage = await BookieStorage.open(disk, bench.config, rng=bench.rng)
        running = asyncio.create_task(storage.background())
        changes: list[bool] = []
        storage.writability.on_change(lambda _: changes.append(storage.is_writable))
        now_s = asyncio.get_running_loop().time
        entry_id, end_s = 0, now_s() + 3600
        while now_s() < end_s:
            if await add(storage, make_run(1, entry_id, 1, size=400)) is Status.OK:
                entry_id += 1
            else:
                await asyncio.sleep(0.5)
        assert changes == [False]
        (condition,) = storage.writability.report()
        assert "a quota, no free inodes" in str(condition["detail"])
        bench.faults.capacity_bytes = 10**9
        await asyncio.sleep(WAIT_S_MAX + 2 * WAIT_S_MIN)
        assert changes == [False, True]
        assert await add(storage, make_run(1, entry_id, 1, size=400)) is Status.OK
        assert TRIAL_NAME not in bench.platter.names
        assert (await storage.fence(LedgerId(1), KEY)).status is Status.OK
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running
        await storage.close()

    simulate(main)


def test_the_wait_doubles_with_each_refusal_and_is_short_again_after_a_quiet_time() -> None:
    doubt, now_s = DoubtfulRoom(), QUIET_S
    waits: list[float] = []
    for _ in range(2_000):
        waits.append(doubt.note_refusal(now_s))
        assert not doubt.may_try(now_s + waits[-1] - 1)
        now_s += waits[-1]
        assert doubt.may_try(now_s)
    assert waits[:4] == [WAIT_S_MIN, 2 * WAIT_S_MIN, 4 * WAIT_S_MIN, 8 * WAIT_S_MIN]
    assert waits[-1] == WAIT_S_MAX
    doubt.note_proof(now_s)
    assert not doubt.is_doubtful
    assert not doubt.may_try(now_s)
    assert doubt.note_refusal(now_s + QUIET_S - 1) == WAIT_S_MAX
    doubt.note_proof(now_s)
    assert doubt.note_refusal(now_s + QUIET_S) == WAIT_S_MIN
