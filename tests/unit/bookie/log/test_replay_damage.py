"""A small log with each byte flipped, and cut at each byte: no false record is replayed."""

import asyncio
import random

import pytest
from crc32c import crc32c

from bookie.config import StorageConfig
from bookie.errors import FormatError, UnreadableError
from bookie.log import records
from bookie.log.log import Log
from bookie.log.records import Record, RecordKind
from bookie.log.recovery_scan import LogReplay, ReplayOutcome, find_segments
from bookie.log.segments import BLOCK_BYTES, UNREADABLE_BYTES_MAX, StartFiles
from bookie.wire.batch import is_intact, parse_header
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.loop import run_simulation
from tests.support.bookie.batches import make_batch, make_run

NAME = "log/00000001.log"
GROUPS = [
    [(RecordKind.ADDS, bytes(make_run(1, 0, 3, size=5).data))],
    [
        (RecordKind.FENCE, records.encode_ledger(7)),  # type: ignore[arg-type]
        (RecordKind.ADDS, bytes(make_run(2, 4, 1, size=0).data)),
    ],
    [(RecordKind.EXPLICIT_LAC, records.encode_lac(1, 2)), (RecordKind.MASTER_KEY, b"k" * 40)],  # type: ignore[arg-type]
]
ALL = [record for group in GROUPS for record in group]


async def small_log(*, sealed: bool) -> tuple[bytes, list[int]]:
    """Return a log's bytes, and the offset where each record starts: HEAD, then `ALL`, then the
    end.
    """
    platter = Platter()
    disk = CrashableDisk(platter, random.Random(1), DiskFaults(delay_s_max=0.0))
    log = Log(disk, StorageConfig(), await find_segments(disk), 0, lambda _group, _error: None)
    running = asyncio.create_task(log.run())
    for group in GROUPS:
        for kind, body in group:
            log.append(kind, body, None)
        await log.barrier()
    if sealed:
        log.close()
        await running
    running.cancel()
    starts, data = [0], bytes(platter.names[NAME].current)
    for size in [records.RECORD_HEADER_BYTES + 16] + [32 + len(body) for _, body in ALL]:
        starts.append(starts[-1] + size)
    return data, starts


async def replay(data: bytes) -> tuple[list[tuple[RecordKind, bytes]], ReplayOutcome, int]:
    platter, found = Platter(), list[tuple[RecordKind, bytes]]()
    disk = CrashableDisk(platter, random.Random(1), DiskFaults(delay_s_max=0.0))
    file = await disk.create(NAME)
    await file.commit(0, [data])

    def apply(record: Record) -> None:
        if record.header.kind not in (RecordKind.HEAD, RecordKind.FOOTER):
            found.append((record.header.kind, bytes(record.body)))

    outcome = await LogReplay(disk, await find_segments(disk), 0, apply).run()
    left = len(platter.names[NAME].current) if NAME in platter.names else 0
    first = list(found)
    found.clear()
    platter.crash(random.Random(1))  # no start depends on unsynced bytes of the one before
    again = CrashableDisk(platter, random.Random(1), DiskFaults(delay_s_max=0.0))
    await LogReplay(again, await find_segments(again), 0, apply).run()
    assert found == first
    return found, outcome, left


def proved_by(starts: list[int], whole: int) -> int:
    """Return the proved end of a log with its head and `whole` complete records."""
    return [0, starts[1], starts[2], starts[2], starts[4], starts[4]][whole]


def test_log_cut_at_any_byte_ends_in_a_torn_tail() -> None:
    async def main() -> None:
        data, starts = await small_log(sealed=False)
        assert starts[-1] == len(data)
        for size in range(len(data) + 1):
            found, outcome, left = await replay(data[:size])
            whole = sum(start <= size for start in starts[2:])
            assert found == ALL[:whole]
            assert left == proved_by(starts, whole), "the unproved tail was moved"
            assert not outcome.corrupt

    run_simulation(main, 1)


def test_every_flipped_bit_is_found_and_judged() -> None:
    async def main() -> None:
        data, starts = await small_log(sealed=False)
        synced = starts[4]  # the last group proves that all before it was durable
        for place in range(len(data)):
            damaged = bytearray(data)
            damaged[place] ^= 1 << place % 8
            found, outcome, left = await replay(bytes(damaged))
            index = max(i for i, start in enumerate(starts) if start <= place) - 1
            if place < synced:
                assert outcome.corrupt, f"byte {place}"
                assert found == [record for i, record in enumerate(ALL) if i != index]
                assert left == synced
                lost_control = index < 0 or ALL[index][0] is not RecordKind.ADDS
                assert outcome.may_have_lost_fences or not lost_control
            else:
                assert not outcome.corrupt
                assert found == ALL[:index]
                assert left == synced

    run_simulation(main, 1)


def test_bytes_that_the_disk_cannot_read_are_corruption() -> None:
    """Also behind everything that is proved: a torn write can be read."""

    async def main() -> None:
        platter, found = Platter(), list[Record]()
        disk = CrashableDisk(platter, random.Random(1), DiskFaults(delay_s_max=0.0))
        log = Log(disk, StorageConfig(), await find_segments(disk), 0, lambda _group, _error: None)
        running = asyncio.create_task(log.run())
        for entry_id in range(12):
            log.append(RecordKind.ADDS, make_run(1, entry_id, 1, size=2000).data, None)
            await log.barrier()
        running.cancel()
        size = len(platter.names[NAME].current)
        for start in range(0, size, BLOCK_BYTES):
            copy = platter.copied()
            copy.names[NAME].unreadable.append((start + 100, start + 600))
            other = CrashableDisk(copy, random.Random(1), DiskFaults(delay_s_max=0.0))
            found.clear()
            outcome = await LogReplay(other, await find_segments(other), 0, found.append).run()
            assert outcome.corrupt
            ids = [parse_header(record.body).first_entry_id for record in found if is_adds(record)]
            whole = [number for number in range(12) if not is_in(number, start)]
            assert ids == whole

    run_simulation(main, 1)


def is_adds(record: Record) -> bool:
    return record.header.kind is RecordKind.ADDS


def is_in(entry_id: int, start: int) -> bool:
    """Return whether the record of an entry of 2,000 bytes has bytes in an unreadable block."""
    head = records.RECORD_HEADER_BYTES + 16
    size = records.RECORD_HEADER_BYTES + len(make_run(1, 0, 1, size=2000).data)
    first = head + entry_id * size
    return first < start + BLOCK_BYTES and first + size > start


async def test_a_disk_that_cannot_read_much_has_failed() -> None:
    platter = Platter()
    disk = CrashableDisk(platter, random.Random(1), DiskFaults(delay_s_max=0.0))
    file = await disk.create(NAME)
    await file.commit(0, [bytes(3 * UNREADABLE_BYTES_MAX)])
    start_file = await StartFiles(disk).open(NAME)
    platter.names[NAME].unreadable.append((0, UNREADABLE_BYTES_MAX))
    assert await start_file.read(10, 2 * UNREADABLE_BYTES_MAX) == bytes(2 * UNREADABLE_BYTES_MAX)
    assert await start_file.read(0, UNREADABLE_BYTES_MAX) == bytes(UNREADABLE_BYTES_MAX)
    platter.names[NAME].unreadable.append((2 * UNREADABLE_BYTES_MAX, 3 * UNREADABLE_BYTES_MAX))
    with pytest.raises(UnreadableError):
        await start_file.read(2 * UNREADABLE_BYTES_MAX, 1)


def test_a_flip_below_the_footer_of_a_sealed_segment_is_corruption() -> None:
    async def main() -> None:
        data, starts = await small_log(sealed=True)
        for place in range(starts[-1]):
            damaged = bytearray(data)
            damaged[place] ^= 0x10
            _, outcome, left = await replay(bytes(damaged))
            assert outcome.corrupt
            assert left == starts[-1], "the footer proves what is before it, and nothing proves it"

    run_simulation(main, 1)


def test_a_missing_end_is_noticed_by_the_next_segment() -> None:
    async def main() -> None:
        platter, found = Platter(), list[Record]()
        disk = CrashableDisk(platter, random.Random(1), DiskFaults(delay_s_max=0.0))
        config = StorageConfig(segment_bytes_max=1)
        log = Log(disk, config, await find_segments(disk), 0, lambda _group, _error: None)
        running = asyncio.create_task(log.run())
        for kind, body in ALL:
            log.append(kind, body, None)
            await log.barrier()
        log.close()
        await running
        content = platter.names["log/00000002.log"]
        del content.current[-1:]
        outcome = await LogReplay(disk, await find_segments(disk), 0, found.append).run()
        assert outcome.corrupt
        del platter.names["log/00000003.log"]
        outcome = await LogReplay(disk, await find_segments(disk), 0, found.append).run()
        assert outcome.may_have_lost_fences

    run_simulation(main, 1)


def test_a_newer_version_is_refused_untouched() -> None:
    async def main() -> None:
        data, _ = await small_log(sealed=True)
        newer = bytearray(data)
        newer[2] = 2
        newer[28:32] = crc32c(bytes(newer[:28])).to_bytes(4, "little")
        with pytest.raises(FormatError, match="version 2"):
            await replay(bytes(newer))

    run_simulation(main, 1)


@pytest.mark.parametrize("mac_key", [None, b"m" * 32])
def test_is_intact_accepts_only_intact_batches(mac_key: bytes | None) -> None:
    data = bytes(make_batch(3, 5, [b"one", b"", b"three"], mac_key=mac_key).data)
    assert is_intact(data)
    assert not is_intact(data + b"\0")
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        assert not is_intact(damaged)
        assert not is_intact(data[:place])
