"""Deliberately broken builds: they leave out syncs, or the copy of the unproved tail at a start, or
read the mark of a checkpoint after they took its changes.

Such a build must lose promised data. Leaves the loss to `forgetful_files`, and its detection to
`power_cut`.

Format of the variable: the names of `KINDS`, separated by commas. Empty: nothing is left out.
"""

import os
from collections.abc import Callable
from typing import Any, Final

import lmdb

from bookie.files import disk_calls
from bookie.files.disk_real import RealDisk
from bookie.index.index import Index
from bookie.log.recovery_scan import LogReplay
from bookie.storage.upkeep import Upkeep
from tests.faults.crash_points import wrap

VARIABLE: Final = "QUIRE_FAULTS_WITHOUT"
SYNCS: Final = ("syncs of files", "syncs of names", "syncs of index", "copies of the tail")
EARLY_MARKS: Final = "marks older than their changes"
"""Only fences during a checkpoint of damage show it."""
KINDS: Final = (*SYNCS, EARLY_MARKS)


def install(wanted: str) -> None:
    """Leave out the syncs of files, names or the index, or the copy of the tail at a start."""
    for kind in wanted.split(",") if wanted else ():
        assert kind in KINDS, f"nothing is named {kind}"
        match kind:
            case "syncs of files":
                wrap(disk_calls, "sync", _nothing)
            case "syncs of names":
                wrap(RealDisk, "_sync_directory", _nothing)
            case "copies of the tail":
                wrap(LogReplay, "settle", _trusting)
            case "marks older than their changes":
                wrap(Upkeep, "checkpoint", _with_late_mark)
            case _:
                wrap(lmdb, "open", _without_sync)


def _nothing(_: Callable[..., Any]) -> object:
    def do_nothing(*_: object) -> None:
        os.getpid()  # a system call, in place of the sync's

    return do_nothing


def _trusting(real: Callable[..., Any]) -> object:
    async def settle(replay: LogReplay) -> object:
        replay._proved_lsn = max(replay._proved_lsn, replay.outcome.end_lsn)
        await replay._apply_proved()
        return await real(replay)

    return settle


def _with_late_mark(real: Callable[..., Any]) -> object:
    async def checkpoint(upkeep: Upkeep, **options: bool) -> None:
        index, log = upkeep._index, upkeep._log

        def store(_: int, *changes: Any) -> object:
            return Index.checkpoint(index, log.durable_lsn, *changes)

        index.checkpoint = store  # type: ignore[method-assign,assignment]
        await real(upkeep, **options)

    return checkpoint


def _without_sync(real: Callable[..., Any]) -> object:
    def open_without(*arguments: Any, **options: Any) -> object:
        return real(*arguments, **options, sync=False, metasync=False)

    return open_without
