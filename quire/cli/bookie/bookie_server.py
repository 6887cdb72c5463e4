"""Handlers of `quire bookie format|run|check`: a bookie's directories on this machine.

Leaves the bookie itself to `bookie.main`.
"""

import argparse
import asyncio
import os
from pathlib import Path
from typing import Final

from bookie.errors import BookieError
from bookie.main import format_bookie, run_bookie
from bookie.options import BOOKIE, BookieOptions, has_several, load_several
from quire.cli.output import Output
from quire.cli.servers import given_flags, load_given, read_config_file
from quire.errors import CommandError, ExitCode, UsageError
from quire.local.bookie_group import BookieGroup, repair_beside
from quire.operate.bookie_check import check_directory
from quire.options import OptionError
from quire.server.process import ServerProcess, run_server
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
    return ExitCode.REFUSED if run_bookie(options, repair_beside) else ExitCode.DONE


def _run_group(several: tuple[BookieOptions, ...], prefix: str | None, output: Output) -> ExitCode:
    ended_in_order: list[bool] = []

    async def serve(stopping: asyncio.Event) -> None:
        log = ServerLog(asyncio.get_running_loop().time)
        group = BookieGroup(several, prefix, output.results, log)
        ended_in_order.append(await group.run(stopping))

    first = several[0]
    process = ServerProcess("bookie group", first.log_level, first.die_with_parent, (OSError,))
    return (
        ExitCode.REFUSED if run_server(process, serve) or not all(ended_in_order) else ExitCode.DONE
    )


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
