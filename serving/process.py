"""Runs a server as a process: until SIGTERM, SIGINT or, when asked for, the end of standard input.

Leaves what is served to the caller's coroutine, which closes what it has opened.

Format of standard output: one JSON line once the server serves. Everything else goes to standard
error.
"""

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from importlib import metadata as distributions
from typing import Final, TypeVar

from serving.descriptors import ConnectionRefuser
from serving.loop_lag import PROCESS_LAG
from serving.server_log import LOGGER, start_logging

COLLECT_AFTER_OBJECTS: Final = 20_000
"""Growth in tracked objects between two runs of the cycle collector: requests make few cycles, and
at the default, 700, it walks what is kept in memory again and again. It bounds what cycles hold.
"""
EXIT_OK: Final = 0
EXIT_FAILED: Final = 1
STANDARD_INPUT: Final = 0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """What is run, and how it may end."""

    kind: str
    """What the server is, for messages: "bookie", "broker"."""

    log_level: str
    die_with_parent: bool
    """Whether it stops when standard input ends."""

    failures: tuple[type[Exception], ...]
    """What ends it with one line in the log that says what to do."""

    collect_after_objects: int = COLLECT_AFTER_OBJECTS
    """For a server whose requests under way are more objects than that: the collector would look at
    them again and again, and find nothing.
    """

    warning: str = ""
    """What an operator should know from the start on; empty for nothing."""


def run_server(
    process: ServerProcess, serve: Callable[[asyncio.Event], Coroutine[None, None, None]]
) -> int:
    """Run `serve`, which returns soon after the event is set.

    Returns the process's exit status; a failure was then written to standard error.
    """
    refuse_optimised_mode()
    start_logging(sys.stderr, process.log_level)
    if process.warning:
        logging.getLogger(LOGGER).warning(process.warning)
    gc.set_threshold(process.collect_after_objects)
    gc.freeze()  # what was imported is there until the end: no collection need look at it

    async def serve_until_told() -> None:
        refuser = ConnectionRefuser()
        refuser.install(asyncio.get_running_loop())
        PROCESS_LAG.start()
        with contextlib.closing(refuser), contextlib.closing(PROCESS_LAG):
            await serve(_stopping_event(with_parent=process.die_with_parent))

    try:
        run_on_a_loop(serve_until_told)
    except process.failures as error:
        logging.getLogger(LOGGER).error("%s stopped: %s", process.kind, error)  # noqa: TRY400 - it says what to do
        return EXIT_FAILED
    return EXIT_OK


def refuse_optimised_mode() -> None:
    """End a process that would not look at its assertions."""
    if not __debug__:
        raise SystemExit("Quire does not run under python -O: its assertions protect your data")


def run_on_a_loop(work: Callable[[], Coroutine[None, None, Result]]) -> Result:
    """Return what a coroutine returns, run on the fastest event loop there is."""
    try:
        import uvloop  # noqa: PLC0415 - faster where it is installed, never needed
    except ImportError:
        return asyncio.run(work())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


async def first_of(work: Coroutine[None, None, Result], stopping: asyncio.Event) -> Result | None:
    """Return what the coroutine returns, or None, with the coroutine given up, once the event is
    set; raise what the coroutine raises, if that comes first.
    """
    task = asyncio.ensure_future(work)
    told = asyncio.ensure_future(stopping.wait())
    task.add_done_callback(lambda _: told.cancel())
    await asyncio.gather(told, return_exceptions=True)
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None


def print_ready(line: Mapping[str, object]) -> None:
    """Tell whoever started the process that it serves, and where."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def wall_clock_ms() -> int:
    """Return the time of day, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def build() -> str:
    """Return the version of what runs."""
    try:
        return distributions.version("quire")
    except distributions.PackageNotFoundError:
        return "unknown"


def _stopping_event(*, with_parent: bool) -> asyncio.Event:
    """Return what is set when the process is told to stop."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if with_parent:
        _watch_standard_input(loop, stopping)
    return stopping


def _watch_standard_input(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Stop when standard input ends: whoever started us holds its other end, and has died."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(STANDARD_INPUT, 4096):
                continue
        with contextlib.suppress(RuntimeError):  # the loop has ended before
            loop.call_soon_threadsafe(stopping.set)

    threading.Thread(target=watch, name="parent", daemon=True).start()
