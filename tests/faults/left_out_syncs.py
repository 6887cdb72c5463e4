"""Deliberately broken builds: they leave out syncs, or the copy of the unproved tail at a start.

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
from bookie.log.recovery_scan import LogReplay
from tests.faults.crash_points import wrap

VARIABLE: Final = "QUIRE_FAULTS_WITHOUT"
KINDS: Final = ("syncs of files", "syncs of names", "syncs of index", "copies of the tail")


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


def _without_sync(real: Callable[..., Any]) -> object:
    def open_without(*arguments: Any, **options: Any) -> object:
        return real(*arguments, **options, sync=False, metasync=False)

    return open_without
