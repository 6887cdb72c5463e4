"""Handlers of `quire bookie format|run|check`: a bookie's directories on this machine.

A check reads the complete log of a stopped bookie, and the pages of its index's file; it changes
nothing.

Source: protocol rules 2.2, 2.4; storage design, "One log".
"""

import argparse
import asyncio
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from bookie.errors import BookieError, CookieDamagedError, IndexFileError
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
from bookie.main import format_bookie, run_bookie
from bookie.options import BOOKIE, BookieOptions, has_several, load_several
from bookie.storage.opening import INDEX_NAME
from bookie.wire.batch import parse_header
from metadata.ids import LedgerId
from quire.cli.output import Output
from quire.cli.servers import given_flags, load_given, read_config_file
from quire.errors import CommandError, ExitCode, UsageError
from quire.local.bookie_group import BookieGroup, repair_beside
from quire.offline.stopped import has_index, list_segments
from quire.options import OptionError
from quire.server.process import EXIT_FAILED, EXIT_OK, ServerProcess, run_server
from quire.server.server_log import ServerLog

LOCK_NAME: Final = "lock"
TRY_NEXT: Final = "quire config show"


def format_directory(arguments: argparse.Namespace, output: Output) -> int:
    """Create a bookie in an empty directory, or one for each `[[bookie]]` table of the file."""
    several = _several(arguments)
    for options in several or (_options(arguments),):
        output.record({"id": _format(options, arguments.prefix), "data_dir": options.data_dir})
    return ExitCode.DONE


def run(arguments: argparse.Namespace, output: Output) -> int:
    """Run a bookie until it receives a stop signal; print one JSON line once it serves. Run all
    bookies of a file with several `[[bookie]]` tables.
    """
    several = _several(arguments)
    if several:
        return _run_group(several, arguments.format_if_empty, output)
    options = _options(arguments)
    if arguments.format_if_empty is not None and _is_empty(Path(options.data_dir)):
        _format(options, arguments.format_if_empty)
    output.results.flush()
    return run_bookie(options, repair_beside)


def _run_group(several: tuple[BookieOptions, ...], prefix: str | None, output: Output) -> int:
    ended_in_order: list[bool] = []

    async def serve(stopping: asyncio.Event) -> None:
        log = ServerLog(asyncio.get_running_loop().time)
        group = BookieGroup(several, prefix, output.results, log)
        ended_in_order.append(await group.run(stopping))

    first = several[0]
    process = ServerProcess("bookie group", first.log_level, first.die_with_parent, (OSError,))
    return run_server(process, serve) or (EXIT_OK if all(ended_in_order) else EXIT_FAILED)


def _several(arguments: argparse.Namespace) -> tuple[BookieOptions, ...]:
    """Return the bookies of a file with `[[bookie]]` tables; empty for any other file."""
    text = read_config_file(arguments.config)
    try:
        if text is None or not has_several(text):
            return ()
        return load_several(text, os.environ, given_flags(arguments, BOOKIE))
    except OptionError as error:
        raise UsageError(str(error), try_next=TRY_NEXT) from error


def _options(arguments: argparse.Namespace) -> BookieOptions:
    text = read_config_file(arguments.config)
    return load_given(BOOKIE, text, given_flags(arguments, BOOKIE), try_next=TRY_NEXT)


def _format(options: BookieOptions, prefix: str) -> str:
    try:
        Path(options.data_dir).mkdir(parents=True, exist_ok=True)
        return format_bookie(options, prefix)
    except (BookieError, OSError) as error:
        raise CommandError(str(error)) from error


def _is_empty(directory: Path) -> bool:
    """Return whether a directory holds no data: at most empty directories and the lock."""
    return not any(path.is_file() and path.name != LOCK_NAME for path in directory.rglob("*"))


async def check(arguments: argparse.Namespace, output: Output) -> int:
    """Read a stopped bookie's log; status 1 if any of it is damaged."""
    data_dir = Path(arguments.data_dir)
    if not data_dir.is_dir():  # noqa: ASYNC240  nothing else runs
        raise UsageError(f"{data_dir} is not a directory", try_next="give the bookie's data_dir")
    try:
        report = await check_directory(data_dir)
    except BookieError as error:
        raise CommandError(str(error)) from error
    output.record(
        {
            "id": report.bookie_id or None,
            "segment_count": report.segment_count,
            "record_count": report.record_count,
            "entry_count": report.entry_count,
            "ledger_count": len(report.ledgers),
            "byte_count": report.byte_count,
            "torn_bytes": report.torn_bytes,
            "findings": report.findings,
        }
    )
    return ExitCode.FINDINGS if report.findings else ExitCode.DONE


@dataclass(slots=True)
class LogReport:
    """Content of a bookie's directory.

    The directory is locked while it is read; bytes behind everything that is known to have been
    synced are a torn tail, which the next start cuts; they are not a finding.
    """

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
    cookies: list[Cookie] = []
    for directory in DIRECTORIES:
        if COOKIE_NAME not in await disk.list_names(directory):
            report.findings.append(f"directory {directory} has no cookie")
            continue
        file = await disk.open(f"{directory}/{COOKIE_NAME}")
        try:
            data = bytes(await file.read(0, COOKIE_BYTES_MAX))
            cookies.append(decode_cookie(data, f"{directory}/{COOKIE_NAME}"))
        except CookieDamagedError as error:
            report.findings.append(str(error))
        finally:
            await file.close()
    if cookies:
        report.bookie_id = cookies[0].bookie_id
    names = dict.fromkeys(cookie.bookie_id for cookie in cookies)
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


def _count(parsed: list[records.Record], report: LogReport) -> None:
    for record in parsed:
        report.record_count += 1
        report.byte_count += record.header.size
        if record.header.kind is records.RecordKind.ADDS:
            batch = parse_header(record.body)
            report.entry_count += batch.count
            held = report.ledgers.get(batch.ledger_id, 0)
            report.ledgers[batch.ledger_id] = held + batch.count
