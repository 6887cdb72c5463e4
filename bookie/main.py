"""Running and formatting of bookies as processes. Only this module builds a real disk, store and
rng.

Leaves the parts of a bookie to `bookie.bookie_process`, the tasks common to all server processes to
`quire.server.process`, and the command line to `quire`.

Format of standard output: one JSON line once the bookie serves: {"id", "address", "admin", "pid",
"data_dir"}.
"""

import asyncio
import faulthandler
import gc
import os
import random
import socket
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from bookie.bookie_process import BookieAddresses, BookieProcess
from bookie.errors import FINAL, BookieError
from bookie.files.disk_real import RealDisk
from bookie.identity.identity import format_directories
from bookie.log.reserve import check_room
from bookie.log.segments import OPEN_FILES_MAX
from bookie.options import BookieOptions
from bookie.storage.disk_watch import HangGuard
from metadata.errors import MetadataError
from metadata.ids import BookieId
from metadata.registry.location import with_host_name
from metadata.store.interface import MetadataStore
from metadata.store.zookeeper.store import open_store
from quire.addresses import join_address
from quire.distribution import build
from quire.identity.errors import SecurityError
from quire.server.descriptors import share_descriptors
from quire.server.process import (
    ServerProcess,
    end_at_once,
    first_of,
    print_ready,
    refuse_optimised_mode,
    run_on_a_loop,
    run_server,
    wall_clock_ms,
)

SWITCH_INTERVAL_S: Final = 0.00005
"""Switch interval of the interpreter, in seconds. At the default, 5 ms, the log's thread waits that
long for a busy event loop after each sync.
"""
BOOKIE_ID_PREFIX: Final = "bookie"
OWN_DESCRIPTORS: Final = 128
"""Number of descriptors besides segments for reading and clients' connections: the log's files, the
index, the lock, the metadata service's connection, the admin port, and connections that are being
refused.
"""


Companion = Callable[[BookieOptions], AbstractAsyncContextManager[None]]
"""Work beside a bookie, from its start to its stop. It handles its own failures."""


def run_bookie(options: BookieOptions, companion: Companion | None = None) -> int:
    """Run a bookie until a signal stops it.

    Returns the process's exit status. A failure is written to standard error.
    """
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    if sys.stderr is not None:  # LMDB's map: a page that cannot be read any more ends the process
        faulthandler.enable()
    connections_max, warning = share_descriptors(
        options.connections_max, OPEN_FILES_MAX + OWN_DESCRIPTORS
    )
    options = replace(
        options,
        connections_max=connections_max,
        location=with_host_name(options.location, socket.gethostname()),
    )
    failures = (BookieError, MetadataError, SecurityError)
    process = ServerProcess(
        "bookie",
        options.log_level,
        options.die_with_parent,
        failures,
        warning=warning,
        final=FINAL,
    )
    return run_server(process, partial(_serve, options, companion))


def format_bookie(options: BookieOptions, prefix: str = BOOKIE_ID_PREFIX) -> BookieId:
    """Create a new bookie in an empty `data_dir`; return its id. Raises BookieError and
    MetadataError: ClusterNotFoundError, where no cluster was created.
    """
    refuse_optimised_mode()
    return run_on_a_loop(partial(_format, options, prefix))


async def _format(options: BookieOptions, prefix: str) -> BookieId:
    rng = random.Random(os.urandom(16))
    store = await _open_store(options, rng)
    disk = RealDisk(Path(options.data_dir), options.capacity_bytes)
    try:
        await disk.lock()
        check_room(await disk.space("log"), options.storage)
        return await format_directories(disk, store, prefix, rng, wall_clock_ms)
    finally:
        await disk.close()
        await store.aclose()


async def _serve(
    options: BookieOptions, companion: Companion | None, stopping: asyncio.Event
) -> None:
    rng = random.Random(os.urandom(16))
    disk = RealDisk(Path(options.data_dir), options.capacity_bytes)
    try:
        await disk.lock()
        store = await _open_store(options, rng)
        try:
            async with AsyncExitStack() as beside:
                if companion is not None:
                    await beside.enter_async_context(companion(options))
                await _serve_with(options, disk, store, rng, stopping)
        finally:
            await store.aclose()
    finally:
        await disk.close()


async def _serve_with(
    options: BookieOptions,
    disk: RealDisk,
    store: MetadataStore,
    rng: random.Random,
    stopping: asyncio.Event,
) -> None:
    process = BookieProcess(
        options,
        disk,
        store,
        rng,
        build=build(),
        wall_clock_ms=wall_clock_ms,
        secret_rng=random.SystemRandom(),
    )
    guard: HangGuard | None = None
    try:
        bookie_id, addresses = await process.start()
        assert process.health is not None, "a bookie that has started watches its disk"
        health = process.health
        guard = HangGuard(
            process.under_way, lambda: health.checked_s, options.disk_hung_s, _end_at_once
        )
        gc.collect()
        gc.freeze()  # what a start loaded stays: no later collection must scan it
        _print_ready(options, bookie_id, addresses)
        await first_of(process.wait_for_failure(), stopping)
    finally:
        if guard is not None:
            guard.stop()
        await process.stop()


def _end_at_once(why: str) -> None:
    """End the process: the event loop hangs, so nothing can be closed cleanly. The next start
    replays the log.
    """
    end_at_once("bookie", f"the disk hangs, {why}")


def _print_ready(options: BookieOptions, bookie_id: BookieId, addresses: BookieAddresses) -> None:
    print_ready(
        {
            "id": bookie_id,
            "address": join_address(addresses.host, addresses.port),
            "admin": addresses.admin_url,
            "pid": os.getpid(),
            "data_dir": str(Path(options.data_dir).absolute()),
        }
    )


async def _open_store(options: BookieOptions, rng: random.Random) -> MetadataStore:
    return await open_store(
        options.metadata, rng=rng, session_timeout_s=options.session_timeout_s, make_root=False
    )
