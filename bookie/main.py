"""Runs and formats bookies as processes: the only place that builds a real disk, store, clock and
rng.

Leaves everything that a bookie does to `bookie.bookie_process`, and the command line to `quire`.

Format of standard output: one JSON line once the bookie serves: {"id", "address", "admin", "pid",
"data_dir"}. Everything else goes to standard error.
"""

import asyncio
import contextlib
import gc
import json
import logging
import os
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine
from importlib import metadata as distributions
from pathlib import Path
from typing import Final, TypeVar

from bookie.bookie_process import Addresses, BookieProcess
from bookie.disk_real import RealDisk
from bookie.errors import BookieError
from bookie.identity import format_directories
from bookie.options import BookieOptions
from metadata.errors import MetadataError
from metadata.ids import BookieId
from metadata.store import MetadataStore
from metadata.zookeeper import open_store
from serving.server_log import LOGGER, start_logging

SWITCH_INTERVAL_S: Final = 0.00005
"""At the default, 5 ms, a busy event loop keeps the log's thread from the interpreter after each
sync.
"""
COLLECT_AFTER_OBJECTS: Final = 20_000
"""Growth in tracked objects between two runs of the cycle collector: requests make no cycles, and
at the default, 700, it walks the recent entries again and again.
"""

EXIT_OK: Final = 0
STANDARD_INPUT: Final = 0
EXIT_FAILED: Final = 1
BOOKIE_ID_PREFIX: Final = "bookie"
Result = TypeVar("Result")


def run_bookie(options: BookieOptions) -> int:
    """Run a bookie until SIGTERM, SIGINT or, when asked for, the end of standard input.

    Returns the process's exit status; a failure was then written to standard error.
    """
    _refuse_optimised_mode()
    start_logging(sys.stderr, options.log_level)
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    gc.set_threshold(COLLECT_AFTER_OBJECTS)
    try:
        _run_on_a_loop(lambda: _serve(options))
    except (BookieError, MetadataError) as error:
        logging.getLogger(LOGGER).error("bookie stopped: %s", error)  # noqa: TRY400 - it says what to do
        return EXIT_FAILED
    return EXIT_OK


def format_bookie(options: BookieOptions, prefix: str = BOOKIE_ID_PREFIX) -> BookieId:
    """Make a new bookie in an empty `data_dir`; return its id. Raises BookieError and
    MetadataError.
    """
    _refuse_optimised_mode()
    return _run_on_a_loop(lambda: _format(options, prefix))


def _refuse_optimised_mode() -> None:
    if not __debug__:
        raise SystemExit("Quire does not run under python -O: its assertions protect your data")


def _run_on_a_loop(work: Callable[[], Coroutine[None, None, Result]]) -> Result:
    try:
        import uvloop  # noqa: PLC0415 - faster where it is installed, never needed
    except ImportError:
        return asyncio.run(work())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


async def _format(options: BookieOptions, prefix: str) -> BookieId:
    rng = random.Random(os.urandom(16))
    store = await _open_store(options, rng)
    disk = RealDisk(Path(options.data_dir))
    try:
        await disk.lock()
        return await format_directories(disk, store, prefix, rng, _wall_clock_ms)
    finally:
        await disk.close()
        await store.aclose()


async def _serve(options: BookieOptions) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if options.die_with_parent:
        _watch_standard_input(loop, stopping)
    rng = random.Random(os.urandom(16))
    disk = RealDisk(Path(options.data_dir))
    try:
        await disk.lock()
        store = await _open_store(options, rng)
        try:
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
    process = BookieProcess(options, disk, store, rng, build=_build(), wall_clock_ms=_wall_clock_ms)
    try:
        bookie_id, addresses = await process.start()
        _print_ready(options, bookie_id, addresses)
        await _first_of(process.wait_for_failure(), stopping)
    finally:
        await process.stop()


def _print_ready(options: BookieOptions, bookie_id: BookieId, addresses: Addresses) -> None:
    line = {
        "id": bookie_id,
        "address": f"{addresses.host}:{addresses.port}",
        "admin": f"http://{addresses.admin_host}:{addresses.admin_port}",
        "pid": os.getpid(),
        "data_dir": str(Path(options.data_dir).absolute()),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


async def _first_of(failure: Coroutine[None, None, None], stopping: asyncio.Event) -> None:
    """Return when the event is set; raise what the coroutine raises, if that comes first."""
    task = asyncio.ensure_future(failure)
    task.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    if task.done():
        task.result()
    task.cancel()


def _watch_standard_input(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Stop when standard input ends: whoever started us holds its other end, and has died."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(STANDARD_INPUT, 4096):
                continue
        with contextlib.suppress(RuntimeError):  # the loop has ended before
            loop.call_soon_threadsafe(stopping.set)

    threading.Thread(target=watch, name="parent", daemon=True).start()


async def _open_store(options: BookieOptions, rng: random.Random) -> MetadataStore:
    return await open_store(options.metadata, rng=rng, session_timeout_s=options.session_timeout_s)


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _build() -> str:
    try:
        return distributions.version("quire")
    except distributions.PackageNotFoundError:
        return "unknown"
