"""Server process: runs until SIGTERM, SIGINT or, as an option, the end of standard input.

Leaves the service to the caller's coroutine, which closes everything that it opens.

Invariant: an exception that ends a thread ends the process, so that no work waits for ever for it.

Format of standard output: one JSON line when the server is ready. Other output goes to standard
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
from functools import partial
from typing import Final, TypeVar

from quire.distribution import build
from quire.server.descriptors import ConnectionRefuser
from quire.server.errors import CannotListenError
from quire.server.latency import PROCESS_LAG
from quire.server.notify import READY, STOPPING, THIS_PROCESS, keep_from_children
from quire.server.server_log import LOGGER, log_event, start_logging
from quire.tracing.exporting import TracingError, start_from

COLLECT_AFTER_OBJECTS: Final = 20_000
"""Growth in tracked objects between two runs of the garbage collector. Requests create few cycles,
and at the default, 700, the collector scans long-lived objects again and again. The value limits
the memory in cycles.
"""
EXIT_OK: Final = 0
EXIT_REFUSED: Final = 4
"""A start again cannot help. The statuses are those of `quire.errors.ExitCode`."""
EXIT_FAILED: Final = 5
STANDARD_INPUT: Final = 0

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """Settings of a server process."""

    kind: str
    """Kind of the server, for messages: "bookie", "broker"."""

    log_level: str
    die_with_parent: bool
    """Whether it stops when standard input ends."""

    failures: tuple[type[Exception], ...]
    """Exceptions, besides CannotListenError, that end it with one line in the log that says what to
    do.
    """

    collect_after_objects: int = COLLECT_AFTER_OBJECTS
    """Value for the collector. A server whose running requests have more objects needs a higher
    one: otherwise the collector scans them again and again without effect.
    """

    warning: str = ""
    """Warning to log at the start; empty for none."""

    final: tuple[type[Exception], ...] = ()
    """Failures that a start again cannot cure: an operator must do something first."""


def run_server(
    process: ServerProcess, serve: Callable[[asyncio.Event], Coroutine[None, None, None]]
) -> int:
    """Run `serve`, which must return soon after the event is set.

    Returns the process's exit status. A failure is written to standard error.
    """
    refuse_optimised_mode()
    began_s = time.monotonic()
    keep_from_children(os.environ)
    failures: tuple[type[Exception], ...] = (CannotListenError, TracingError, *process.failures)
    start_logging(sys.stderr, process.log_level)
    log_event("server starts", kind=process.kind, build=build(), pid=os.getpid())
    if process.warning:
        logging.getLogger(LOGGER).warning(process.warning)
    gc.set_threshold(process.collect_after_objects)
    gc.freeze()  # imported objects live until the end: no collection must scan them

    async def serve_until_stopped() -> None:
        refuser = ConnectionRefuser()
        refuser.install(asyncio.get_running_loop())
        PROCESS_LAG.start()
        THIS_PROCESS.start()
        closing = (refuser, PROCESS_LAG, THIS_PROCESS)
        with contextlib.ExitStack() as parts:
            parts.callback(setattr, threading, "excepthook", threading.excepthook)
            threading.excepthook = partial(_thread_ended, process.kind)
            parts.callback(start_from(os.environ, process.kind))
            for part in closing:
                parts.callback(part.close)
            await serve(_stopping_event(with_parent=process.die_with_parent))

    try:
        run_on_a_loop(serve_until_stopped)
    except failures as error:
        logging.getLogger(LOGGER).error("%s stopped: %s", process.kind, error)  # noqa: TRY400 - the text says what to do
        return EXIT_REFUSED if isinstance(error, process.final) else EXIT_FAILED
    log_event("server stopped", kind=process.kind, ran_s=round(time.monotonic() - began_s, 1))
    return EXIT_OK


def end_at_once(kind: str, why: str, error: BaseException | None = None) -> None:
    """End the process without closing anything, so that its session with the metadata service ends
    and a supervisor starts it again.
    """
    logging.getLogger(LOGGER).error("%s stopped: %s", kind, why, exc_info=error)
    os._exit(EXIT_FAILED)


def _thread_ended(kind: str, ended: threading.ExceptHookArgs) -> None:
    """End the process: whatever waits for the thread would wait for ever."""
    name = "a thread" if ended.thread is None else f"thread {ended.thread.name}"
    end_at_once(kind, f"{name} ended by {ended.exc_type.__name__}", ended.exc_value)


def refuse_optimised_mode() -> None:
    """Exit if Python runs without assertions."""
    if not __debug__:
        raise SystemExit("Quire does not run under python -O: its assertions protect your data")


def run_on_a_loop(work: Callable[[], Coroutine[None, None, Result]]) -> Result:
    """Run a coroutine on the fastest available event loop; return its result."""
    try:
        import uvloop  # noqa: PLC0415 - faster if installed, optional
    except ImportError:
        return asyncio.run(work())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


async def first_of(work: Coroutine[None, None, Result], stopping: asyncio.Event) -> Result | None:
    """Return the result of the coroutine, or raise its exception. When the event is set first,
    cancel the coroutine and return None.
    """
    task = asyncio.ensure_future(work)
    stopped = asyncio.ensure_future(stopping.wait())
    task.add_done_callback(lambda _: stopped.cancel())
    await asyncio.gather(stopped, return_exceptions=True)
    if task.done():
        return task.result()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return None


def print_ready(line: Mapping[str, object]) -> None:
    """Report to the parent process that the server is ready: print the line, and notify systemd."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
    log_event("server serves", **line)
    THIS_PROCESS.send(READY)


def wall_clock_ms() -> int:
    """Return the time of day, in milliseconds since 1970."""
    return time.time_ns() // 1_000_000


def _stopping_event(*, with_parent: bool) -> asyncio.Event:
    """Return an event that is set when the process must stop."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, _stop, stopping, number.name)
    if with_parent:
        _watch_standard_input(loop, stopping)
    return stopping


def _stop(stopping: asyncio.Event, signal_name: str) -> None:
    log_event("server stops", signal=signal_name)
    THIS_PROCESS.send(STOPPING)
    stopping.set()


def _watch_standard_input(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Set the event when standard input ends: the parent process holds its other end and has
    died.
    """

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(STANDARD_INPUT, 4096):
                continue
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(stopping.set)

    threading.Thread(target=watch, name="parent", daemon=True).start()
