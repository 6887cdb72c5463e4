"""Reads the complete log of a stopped bookie, and the pages of its index's file, and reports
damage.

Leaves the format of records to `bookie.log.records` and `bookie.log.replay`; changes nothing.

Invariants: the directory is locked while it is read; bytes behind everything that is known to have
been synced are a torn tail, which the next start cuts; they are not a finding.

Source: protocol rules 2.2, 2.4; storage design, "One log".
"""

from dataclasses import dataclass, field
from pathlib import Path

from bookie.errors import CookieDamagedError, IndexFileError
from bookie.files.disk import Disk
from bookie.files.disk_real import RealDisk
from bookie.files.index_lmdb import DATA_NAME, check_file
from bookie.identity.cookie import (
    COOKIE_BYTES_MAX,
    COOKIE_NAME,
    DIRECTORIES,
    Cookie,
    decode_cookie,
)
from bookie.log import records
from bookie.log.replay import Damage, SegmentReader
from bookie.log.segments import StartFiles
from bookie.storage.opening import INDEX_NAME
from bookie.wire.batch import parse_header
from metadata.ids import LedgerId
from quire.offline.stopped import has_index, list_segments


@dataclass(slots=True)
class LogReport:
    """Content of a bookie's directory."""

    bookie_id: str = ""
    segment_count: int = 0
    record_count: int = 0
    entry_count: int = 0
    byte_count: int = 0
    torn_bytes: int = 0
    ledgers: dict[LedgerId, int] = field(default_factory=dict)
    """Number of entries by ledger, including those of deleted ledgers."""
    findings: list[str] = field(default_factory=list)


async def check_directory(data_dir: Path) -> LogReport:
    """Read the complete log and the index's file. Raises DirectoryLockedError while the bookie
    runs, FormatError, DiskFailedError.
    """
    report = LogReport()
    disk = RealDisk(data_dir)
    try:
        await disk.lock()
        await _check_cookies(disk, report)
        await _check_log(disk, report)
        _check_index(data_dir, report)
    finally:
        await disk.close()
    return report


async def _check_cookies(disk: Disk, report: LogReport) -> None:
    found: list[Cookie] = []
    for directory in DIRECTORIES:
        if COOKIE_NAME not in await disk.list_names(directory):
            report.findings.append(f"directory {directory} has no cookie")
            continue
        file = await disk.open(f"{directory}/{COOKIE_NAME}")
        try:
            data = bytes(await file.read(0, COOKIE_BYTES_MAX))
            found.append(decode_cookie(data, f"{directory}/{COOKIE_NAME}"))
        except CookieDamagedError as error:
            report.findings.append(str(error))
        finally:
            await file.close()
    if found:
        report.bookie_id = found[0].bookie_id
    names = dict.fromkeys(cookie.bookie_id for cookie in found)
    if len(names) > 1:
        report.findings.append(f"directories of several bookies: {', '.join(names)}")


async def _check_log(disk: Disk, report: LogReport) -> None:
    segments, files = await list_segments(disk), StartFiles(disk)
    damages: list[tuple[str, Damage, int]] = []
    synced_lsn = 0
    for number, segment in sorted(segments.by_number.items()):
        file = await files.open(segment.name)
        try:
            report.segment_count += 1
            reader = SegmentReader(file, number, 0)
            while (part := await reader.next()) is not None:
                if isinstance(part, Damage):
                    end = records.lsn_of(number, file.size)
                    damages.append((segment.name, part, end))
                    continue
                synced_lsn = max(synced_lsn, part[-1].header.synced_lsn)
                _count(part, report)
        finally:
            await file.close()
    for name, damage, end in damages:
        size = (damage.next_lsn or end) - damage.lsn
        where = records.offset_of(damage.lsn)
        if files.overlap(name, where, where + size):
            report.findings.append(
                f"{name}: {size} bytes at {where} are lost: the disk cannot read all of them"
            )
        elif damage.lsn >= synced_lsn:
            report.torn_bytes += size
        else:
            report.findings.append(f"{name}: {size} bytes at {where} are damaged")


def _check_index(data_dir: Path, report: LogReport) -> None:
    if has_index(data_dir):
        try:
            check_file(data_dir / INDEX_NAME / DATA_NAME)
        except IndexFileError as error:
            report.findings.append(str(error))


def _count(found: list[records.Record], report: LogReport) -> None:
    for record in found:
        report.record_count += 1
        report.byte_count += record.header.size
        if record.header.kind is records.RecordKind.ADDS:
            batch = parse_header(record.body)
            report.entry_count += batch.count
            held = report.ledgers.get(batch.ledger_id, 0)
            report.ledgers[batch.ledger_id] = held + batch.count
