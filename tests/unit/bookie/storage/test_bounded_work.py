"""Maximum work of one callback on a bookie's loop: records of a group, batches of an answer, runs
of a look-up, and records that a read passes.
"""

import asyncio
import random

import pytest

from bookie.config import MIB, StorageConfig
from bookie.errors import BookieError
from bookie.index.index_runs import reach
from bookie.log import records
from bookie.log.log import GROUP_RECORDS_MAX, Log, LogItem
from bookie.log.records import ADDS
from bookie.log.segments import Segments
from bookie.storage import reading
from bookie.storage.reading import BATCHES_PER_ANSWER_MAX
from bookie.wire.batch import Buffer
from bookie.wire.messages import Status
from tests.simulation.disk import CrashableDisk, Platter
from tests.simulation.loop import run_simulation
from tests.support.bookie.batches import make_run
from tests.support.bookie.storage_fixture import KEY, Bench, add, entries_of, read, simulate

LARGE = StorageConfig(segment_bytes_max=64 * MIB, reserve_bytes_min=0, recent_bytes_max=64 * MIB)
COUNT = 2 * BATCHES_PER_ANSWER_MAX + 10


def test_a_group_has_a_bounded_number_of_records() -> None:
    async def test() -> None:
        groups: list[int] = []
        disk = CrashableDisk(Platter(), random.Random(1))

        def on_group(group: list[LogItem], error: BookieError | None) -> None:
            assert error is None
            groups.append(len(group))

        log = Log(disk, StorageConfig(), Segments(disk), 0, on_group)
        running = asyncio.create_task(log.run())
        body = bytes(make_run(7, 0, 1).data)
        for _ in range(2 * GROUP_RECORDS_MAX + 5):
            log.append(ADDS, body, None)
        log.close()
        await running
        assert groups == [GROUP_RECORDS_MAX, GROUP_RECORDS_MAX, 5]

    run_simulation(test, 1)


async def _fill(bench: Bench, count: int) -> None:
    storage = await bench.open()
    answers: list[Status] = []
    for entry_id in range(count):
        storage.add(make_run(7, entry_id, 1), recovery=False, master_key=KEY, done=answers.append)
    await storage.wait_for_room()
    assert await add(storage, make_run(8, 0, 1)) is Status.OK
    assert answers == [Status.OK] * count
    await storage.close()


@pytest.mark.parametrize("from_memory", [False, True])
def test_an_answer_has_a_bounded_number_of_batches(from_memory: bool) -> None:
    async def test(bench: Bench) -> None:
        bench.config = LARGE
        storage = await bench.open()
        answers: list[Status] = []
        for entry_id in range(COUNT):
            storage.add(
                make_run(7, entry_id, 1), recovery=False, master_key=KEY, done=answers.append
            )
        assert await add(storage, make_run(8, 0, 1)) is Status.OK
        if not from_memory:
            storage = await bench.reopen(storage)
        sizes: list[int] = []
        next_entry_id = 0
        while next_entry_id < COUNT:
            if from_memory:
                found = storage.reads.try_read(7, next_entry_id, COUNT - 1, 8 * MIB, KEY)  # type: ignore[arg-type]
                assert found is not None
            else:
                found = await read(storage, 7, next_entry_id, COUNT - 1, bytes_max=8 * MIB)
            assert found.status is Status.OK
            assert min(entries_of(found)) == next_entry_id
            assert len(entries_of(found)) == len(found.batches)
            sizes.append(len(found.batches))
            next_entry_id = found.next_entry_id
        assert sizes == [BATCHES_PER_ANSWER_MAX, BATCHES_PER_ANSWER_MAX, 10]
        await storage.close()

    simulate(test)


def test_an_entry_late_in_a_run_is_found_without_a_check_of_each_record_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked: list[int] = []
    decode_header = records.decode_header

    def decode(data: Buffer, offset: int, lsn: int) -> records.RecordHeader | None:
        checked.append(offset)
        return decode_header(data, offset, lsn)

    async def test(bench: Bench) -> None:
        bench.config = LARGE
        await _fill(bench, 3_000)
        storage = await bench.open()
        await storage.checkpoint()
        monkeypatch.setattr(reading.records, "decode_header", decode)  # type: ignore[attr-defined]
        for entry_id in (0, 1, 1_500, 2_999):
            checked.clear()
            found = entries_of(await read(storage, 7, entry_id, entry_id))
            assert list(found) == [entry_id]
            assert len(checked) <= 8
        monkeypatch.undo()
        await storage.close()

    simulate(test)


@pytest.mark.parametrize("what", ["magic", "count", "ledger", "size"])
def test_damage_before_the_wanted_record_is_noticed(what: str) -> None:
    """Damage before the wanted record never causes a wrong answer."""

    async def test(bench: Bench) -> None:
        bench.config = LARGE
        await _fill(bench, 50)
        storage = await bench.open()
        await storage.checkpoint()
        content = bench.platter.names["log/00000001.log"].current
        starts: list[int] = []
        place = 0
        while (header := records.decode_header(content, place, (1 << 32) + place)) is not None:
            if header.kind == ADDS:
                starts.append(place)
            place += header.size
        offsets: dict[str, tuple[int, ...]] = {
            "magic": (0,),
            "size": (4,),
            "count": (32 + 4, 32 + 6),
            "ledger": (32 + 8,),
        }
        for offset in offsets[what]:
            content[starts[10] + offset] ^= 1
            found = await read(storage, 7, 30, 30)
            assert found.status in (Status.OK, Status.UNKNOWN)
            assert list(entries_of(found)) in ([], [30])
            assert (found.status is Status.OK) == bool(found.batches)
            content[starts[10] + offset] ^= 1
        content[starts[30] + 100] ^= 1
        assert (await read(storage, 7, 30, 30)).status is Status.UNKNOWN
        assert list(entries_of(await read(storage, 7, 31, 31))) == [31]

    simulate(test)


def test_reach_of_a_look_up() -> None:
    runs = [(10 * number + 4, 10 * number, number, 1) for number in range(5)]
    assert reach(runs, 0, 1_000, 2) == 14
    assert reach(runs, 12, 1_000, 2) == 24
    assert reach(runs, 15, 1_000, 2) == 34
    assert reach(runs, 0, 7, 2) == 7
    assert reach(runs, 30, 1_000, 3) == 1_000
    assert reach([], 0, 1_000, 1) == 1_000


def test_an_absent_entry_behind_many_runs_in_memory_is_a_sure_negative() -> None:
    async def test(bench: Bench) -> None:
        storage = await bench.open()
        for number in range(200):  # runs that cannot be merged
            assert await add(storage, make_run(7, 2 * number, 1)) is Status.OK
        for entry_id in (1, 255, 397):
            assert (await read(storage, 7, entry_id, 1_000)).status is Status.NO_SUCH_ENTRY
        assert (await read(storage, 7, 399, 1_000)).status is Status.NO_SUCH_ENTRY
        found = await storage.reads.entry_ranges(7, 0, 1_000)  # type: ignore[arg-type]
        assert found.complete
        assert found.ranges == tuple((2 * number, 2 * number) for number in range(200))
        await storage.close()

    simulate(test)
