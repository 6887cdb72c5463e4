"""`quire bookie segments|dump|rebuild-index`: inspection of a stopped bookie's directory."""

import argparse
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, fields
from pathlib import Path
from typing import Final

from bookie.errors import BookieError, DirectoryLockedError
from bookie.files.disk_real import RealDisk
from bookie.log.segments import DIRECTORY, StartFiles, parse_name
from quire.cli.output import Output
from quire.cli.progress import Progress
from quire.errors import CommandError, ExitCode, UsageError
from quire.offline.index_rebuild import (
    IndexUnprovenError,
    rebuild_index,
    remove_unfinished,
    swap_index,
)
from quire.offline.segments import DAMAGE, DumpedRecord, dump_records, report_segments
from quire.offline.stopped import has_index, open_directory
from quire.operate.fields import Json

SEGMENT_COLUMNS: Final = (
    "segment",
    "kind",
    "bytes",
    "records",
    "entries",
    "ledgers",
    "live_bytes",
    "first_lsn",
    "last_lsn",
    "footer",
    "damaged_bytes",
    "tail_bytes",
)
DUMP_COLUMNS: Final = (
    "offset",
    "lsn",
    "synced_lsn",
    "kind",
    "size",
    "ledger_id",
    "first_entry_id",
    "last_entry_id",
    "crc",
)


class BookieRunsError(CommandError):
    """The directory is locked."""


async def segments(arguments: argparse.Namespace, output: Output) -> int:
    """List the segment files; status 1 if any of them is damaged."""
    is_damaged = False
    async with _opened(Path(arguments.data_dir)) as disk:
        with Progress(output, "read", "bytes") as progress:
            reports = await report_segments(
                disk, progress.advance, has_index=has_index(Path(arguments.data_dir))
            )
    with output.listing(*SEGMENT_COLUMNS) as listing:
        for report in reports:
            is_damaged = is_damaged or report.damaged_bytes > 0
            listing.add(
                {
                    "segment": report.number,
                    "name": report.name,
                    "kind": "cleaned" if report.is_cleaned else "log",
                    "bytes": report.byte_count,
                    "records": report.record_count,
                    "entries": report.entry_count,
                    "ledgers": report.ledger_count,
                    "live_bytes": report.live_bytes,
                    "first_lsn": report.first_lsn,
                    "last_lsn": report.last_lsn,
                    "footer": report.has_footer,
                    "damaged_bytes": report.damaged_bytes,
                    "tail_bytes": report.tail_bytes,
                }
            )
    return ExitCode.FINDINGS if is_damaged else ExitCode.DONE


async def dump(arguments: argparse.Namespace, output: Output) -> int:
    """Print the records of one segment file; status 1 if some of it is damaged."""
    path = Path(arguments.segment)
    parsed = parse_name(path.name)
    if parsed is not None and not path.is_file():  # noqa: ASYNC240 - nothing else runs
        raise UsageError(f"there is no file {path}", try_next="quire bookie segments DIR")
    if parsed is None:
        raise UsageError(
            f"{path} is not a segment file, such as DIR/log/00000001.log or DIR/log/0000000a.clean",
            try_next="quire bookie segments DIR",
        )
    async with _opened_for(path) as (disk, name):
        file = await StartFiles(disk).open(name)
        try:
            dumped = dump_records(
                file, parsed[0], first_offset=arguments.first, ledger_id=arguments.ledger
            )
            is_damaged = await _print_records(dumped, arguments.limit, output)
        finally:
            await file.close()
    return ExitCode.FINDINGS if is_damaged else ExitCode.DONE


async def _print_records(
    dumped: AsyncIterator[DumpedRecord], limit: int | None, output: Output
) -> bool:
    """Print at most `limit` records; return whether any of them was damaged."""
    is_damaged, count = False, 0
    names = [field.name for field in fields(DumpedRecord)]
    with output.lines(*DUMP_COLUMNS) as lines:
        async for record in dumped:
            if limit is not None and count >= limit:
                break
            count += 1
            is_damaged = is_damaged or record.kind == DAMAGE
            row = {name: getattr(record, name) for name in names}
            lines.add({name: value for name, value in row.items() if value is not None})
    return is_damaged


async def rebuild(arguments: argparse.Namespace, output: Output) -> int:
    """Build a new index from the old one and every segment, and replace the old one."""
    data_dir = Path(arguments.data_dir)
    async with _opened(data_dir) as disk:
        if not has_index(data_dir):
            raise CommandError(
                f"{data_dir} has no index: the next start builds one from every segment, in limbo",
                try_next=f"quire bookie run --data-dir {data_dir}",
            )
        remove_unfinished(data_dir)
        try:
            with Progress(output, "read", "bytes") as progress:
                report = await rebuild_index(
                    disk, accepts_limbo=arguments.accept_limbo, on_read=progress.advance
                )
        except IndexUnprovenError as error:
            raise CommandError(
                str(error),
                try_next="replace it by a new bookie, which is safest; or use --accept-limbo, "
                "which keeps the states that can be read and makes the bookie answer UNKNOWN for "
                "entries that it does not find",
            ) from error
        kept = swap_index(data_dir, discards_old=arguments.discard)
    row: dict[str, Json] = asdict(report)
    row["old_index"] = None if kept is None else str(kept)
    row["vouches"] = describe_guarantees(is_limbo=report.is_limbo, ledgers=report.limbo_ledgers)
    output.record(row)
    return ExitCode.FINDINGS if report.is_limbo or report.limbo_ledgers else ExitCode.DONE


def describe_guarantees(*, is_limbo: bool, ledgers: int) -> str:
    """Describe what is certain after a rebuild."""
    if is_limbo:
        return (
            "the bookie is in limbo: it answers UNKNOWN for entries that it does not find, takes "
            "no new ledgers, and indexes every segment at its next start"
        )
    if ledgers:
        return (
            f"all but {ledgers} ledgers are as before; these are in limbo: the bookie answers "
            "UNKNOWN for entries of these that it does not find, and they are fenced"
        )
    return "everything is as before: every fence, tombstone and run was accounted for"


@asynccontextmanager
async def _opened(data_dir: Path) -> AsyncIterator[RealDisk]:
    """Lock a directory. Raises CommandError in place of the bookie's errors."""
    try:
        async with open_directory(data_dir) as disk:
            yield disk
    except NotADirectoryError as error:
        raise UsageError(str(error), try_next="give the bookie's data_dir") from error
    except DirectoryLockedError as error:
        raise BookieRunsError(
            f"{data_dir} is in use: the bookie runs and changes its files",
            try_next="stop the bookie (SIGTERM) and run this again; for a running bookie use "
            "quire bookie info ID",
        ) from error
    except BookieError as error:
        raise CommandError(str(error), try_next=f"quire bookie check {data_dir}") from error


@asynccontextmanager
async def _opened_for(path: Path) -> AsyncIterator[tuple[RealDisk, str]]:
    """Open the directory of a segment file; lock it if it is a bookie's directory."""
    directory = _directory_of(path)
    if directory.name == DIRECTORY:
        async with _opened(directory.parent) as disk:
            yield disk, f"{DIRECTORY}/{path.name}"
        return
    disk = RealDisk(directory)  # a copy of the file in another directory
    try:
        yield disk, path.name
    finally:
        await disk.close()


def _directory_of(path: Path) -> Path:
    return path.absolute().parent
