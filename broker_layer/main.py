"""Runs a broker as a process: the only place that builds a real store, clock and rng.

Leaves everything that a broker does to `broker_process`, and the command line to `quire`.

Format of standard output: one JSON line once the broker serves: {"id", "address", "listeners",
"admin", "pid"}. Everything else goes to standard error.
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
from typing import Final, TypeVar

from broker_layer.broker_parts import BrokerEnvironment, client_config
from broker_layer.broker_process import BrokerProcess, Serving
from broker_layer.options import BrokerOptions
from broker_layer.server.server_errors import BrokerError
from ledger_client import LedgerClient
from ledger_client.errors import LedgerError
from metadata.errors import MetadataError
from metadata.zookeeper import open_store
from serving.server_log import LOGGER, start_logging

COLLECT_AFTER_OBJECTS: Final = 20_000
"""Growth in tracked objects between two runs of the cycle collector: requests make few cycles, and
at the default, 700, it walks the recent batches again and again.
"""
EXIT_OK: Final = 0
STANDARD_INPUT: Final = 0
EXIT_FAILED: Final = 1
Result = TypeVar("Result")


def run_broker(options: BrokerOptions) -> int:
    """Run a broker until SIGTERM, SIGINT or, when asked for, the end of standard input.

    Returns the process's exit status; a failure was then written to standard error.
    """
    if not __debug__:
        raise SystemExit("Quire does not run under python -O: its assertions protect your data")
    start_logging(sys.stderr, options.log_level)
    gc.set_threshold(COLLECT_AFTER_OBJECTS)
    try:
        _run_on_a_loop(lambda: _serve(options))
    except (BrokerError, LedgerError, MetadataError) as error:
        logging.getLogger(LOGGER).error("broker stopped: %s", error)  # noqa: TRY400 - it says what to do
        return EXIT_FAILED
    return EXIT_OK


def _run_on_a_loop(work: Callable[[], Coroutine[None, None, Result]]) -> Result:
    try:
        import uvloop  # noqa: PLC0415 - faster where it is installed, never needed
    except ImportError:
        return asyncio.run(work())
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(work())


async def _serve(options: BrokerOptions) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    if options.die_with_parent:
        _watch_standard_input(loop, stopping)
    rng = random.Random(os.urandom(16))
    store = await open_store(options.metadata, rng=rng, session_timeout_s=options.session_timeout_s)
    client = LedgerClient(options.metadata, config=client_config(options))
    process = BrokerProcess(
        BrokerEnvironment(options, store, client, rng, _wall_clock_ms, loop.time, _build())
    )
    try:
        await _until_told(process, stopping)
    finally:
        await process.stop()
        await client.aclose()
        await store.aclose()


async def _until_told(process: BrokerProcess, stopping: asyncio.Event) -> None:
    """Start, serve, and return when the event is set; raise what ends the broker before."""
    starting = asyncio.ensure_future(process.start())
    starting.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    if not starting.done():
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return
    serving = starting.result()
    stopping.clear()
    _print_ready(serving)
    failure = asyncio.ensure_future(process.wait_for_failure())
    failure.add_done_callback(lambda _: stopping.set())
    await stopping.wait()
    if failure.done():
        failure.result()
    failure.cancel()


def _print_ready(serving: Serving) -> None:
    line = {
        "id": serving.broker_id,
        "address": serving.address,
        "listeners": {each.name: f"{each.host}:{each.port}" for each in serving.listeners},
        "admin": serving.admin_url,
        "pid": os.getpid(),
    }
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def _watch_standard_input(loop: asyncio.AbstractEventLoop, stopping: asyncio.Event) -> None:
    """Stop when standard input ends: whoever started us holds its other end, and has died."""

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(STANDARD_INPUT, 4096):
                continue
        with contextlib.suppress(RuntimeError):  # the loop has ended before
            loop.call_soon_threadsafe(stopping.set)

    threading.Thread(target=watch, name="parent", daemon=True).start()


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


def _build() -> str:
    try:
        return distributions.version("quire")
    except distributions.PackageNotFoundError:
        return "unknown"
