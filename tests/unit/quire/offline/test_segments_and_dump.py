"""Contents of a stopped bookie's segment files, sound and damaged, on the simulated disk."""

from bookie.log import records
from bookie.log.segments import StartFiles
from bookie.wire.messages import Status
from metadata.ids import LedgerId
from quire.cli.bookie_server import LogReport, _check_log
from quire.offline.segments import (
    DAMAGE,
    DumpedRecord,
    SegmentReport,
    dump_records,
    report_segments,
)
from tests.simulation.disk import CrashableDisk
from tests.support.bookie.batches import make_run, payload_of
from tests.support.bookie.storage_fixture import KEY, Bench, add, simulate


async def fill(bench: Bench) -> None:
    storage = await bench.open()
    for first in range(0, 60, 2):
        for ledger_id in (5, 6):
            assert await add(storage, make_run(ledger_id, first, 2, size=60)) is Status.OK
    await storage.fence(LedgerId(6), KEY)
    await storage.close()


async def report(bench: Bench) -> list[SegmentReport]:
    disk = CrashableDisk(bench.platter, bench.rng, bench.faults)
    return await report_segments(disk, lambda _: None, has_index=True)


async def dump(
    bench: Bench, name: str, *, first_offset: int = 0, ledger_id: int | None = None
) -> list[DumpedRecord]:
    disk = CrashableDisk(bench.platter, bench.rng, bench.faults)
    file = await StartFiles(disk).open(name)
    number = int(name.removeprefix("log/")[:8], 16)
    found = dump_records(file, number, first_offset=first_offset, ledger_id=ledger_id)
    return [record async for record in found]


def flip(bench: Bench, payload: bytes) -> tuple[str, int]:
    """Flip a bit of a payload; return the file and the offset."""
    for name, content in bench.platter.names.items():
        at = bytes(content.current).find(payload)
        if at >= 0:
            bench.platter.flip_bit(name, at * 8)
            return name, at
    raise AssertionError("no file holds it")


def test_sound_segments_are_reported_with_what_they_hold() -> None:
    async def main(bench: Bench) -> None:
        await fill(bench)
        reports = await report(bench)
        assert len(reports) > 2
        assert [segment_report.number for segment_report in reports] == list(
            range(1, len(reports) + 1)
        )
        assert sum(segment_report.entry_count for segment_report in reports) == 120
        assert all(
            segment_report.has_footer and segment_report.ledger_count == 2
            for segment_report in reports[:-1]
        )
        assert all(
            segment_report.damaged_bytes == segment_report.tail_bytes == 0
            for segment_report in reports
        )
        adds = [
            record
            for segment_report in reports
            for record in await dump(bench, segment_report.name)
            if record.kind == "adds"
        ]
        assert sum(segment_report.live_bytes or 0 for segment_report in reports) == sum(
            record.size for record in adds
        )
        assert reports[1].first_lsn == records.lsn_of(2, 0)

    simulate(main)


def test_bytes_that_the_disk_cannot_read_are_reported_with_their_place() -> None:
    async def main(bench: Bench) -> None:
        await fill(bench)
        last = max(name for name in bench.platter.names if name.startswith("log/"))
        bench.platter.names[last].unreadable.append((0, 512))
        assert (await report(bench))[-1].entry_count < 4
        kinds = [record.kind for record in await dump(bench, last)]
        assert kinds == [DAMAGE]
        found = LogReport()
        await _check_log(CrashableDisk(bench.platter, bench.rng, bench.faults), found)
        assert found.findings
        assert "the disk cannot read all of them" in found.findings[0]
        assert last in found.findings[0]

    simulate(main)


def test_damage_is_distinguished_from_a_torn_tail() -> None:
    async def main(bench: Bench) -> None:
        await fill(bench)
        name, _ = flip(bench, payload_of(5, 0, 60))
        last = max(each for each in bench.platter.names if each.startswith("log/"))
        bench.platter.names[last].current.extend(b"torn" * 10)
        reports = {segment_report.name: segment_report for segment_report in await report(bench)}
        assert reports[name].damaged_bytes > 120
        assert (reports[last].damaged_bytes, reports[last].tail_bytes) == (0, 40)
        assert not reports[last].has_footer

    simulate(main)


def test_a_dump_follows_damage_as_replay_does() -> None:
    async def main(bench: Bench) -> None:
        await fill(bench)
        name = "log/00000001.log"
        sound = await dump(bench, name)
        assert [record.kind for record in sound[:2]] == ["head", "master_key"]
        assert sound[-1].kind == "footer"
        assert sound[-1].run_count == sum(record.kind == "adds" for record in sound)
        assert [record.offset for record in sound[1:]] == [
            record.offset + record.size for record in sound[:-1]
        ]
        adds = [record for record in sound if record.kind == "adds"]
        assert (adds[0].ledger_id, adds[0].first_entry_id, adds[0].last_entry_id) == (5, 0, 1)
        flipped, at = flip(bench, payload_of(5, 2, 60))
        assert flipped == name
        hurt = await dump(bench, name)
        (damage,) = [record for record in hurt if record.kind == DAMAGE]
        assert damage.offset < at < damage.offset + damage.size
        assert (damage.crc, damage.damaged_kind) == ("damaged", "adds")
        assert [record for record in hurt if record.kind != DAMAGE] == [
            record for record in sound if record.offset != damage.offset
        ]
        of_six = await dump(bench, name, first_offset=adds[3].offset, ledger_id=6)
        assert [record.kind for record in of_six if record.kind == DAMAGE] == []
        assert of_six[0].first_entry_id == adds[3].first_entry_id
        assert {record.ledger_id for record in of_six} == {6}

    simulate(main)
