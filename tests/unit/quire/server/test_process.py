"""A server's process ends on a signal, when its work ends, and when its work or
one of its threads fails.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys

import pytest

from quire.errors import ExitCode
from quire.server.process import first_of

PROGRAM = """
import asyncio, sys, threading
from quire.server.errors import CannotListenError
from quire.errors import ExitCode
from quire.server.process import ServerProcess, print_ready, run_server

class Refused(Exception): pass
class Removed(Refused): pass

async def serve(stopping):
    print_ready({"id": "it"})
    if sys.argv[1] == "fail":
        raise Refused("look there")
    if sys.argv[1] == "removed":
        raise Removed("it never serves again")
    if sys.argv[1] == "busy":
        raise CannotListenError("it", "a", 1, "in use")
    if sys.argv[1] == "thread":
        threading.Thread(target=lambda: {}[1], name="it").start()
    await stopping.wait()

sys.exit(run_server(ServerProcess("thing", "info", True, (Refused,), final=(Removed,)), serve))
"""

COLLECTED = """
import gc
from quire.errors import ExitCode
from quire.server.process import COLLECT_AFTER_OBJECTS, ServerProcess, run_server

async def serve(stopping):
    print(gc.get_threshold()[0], gc.get_freeze_count() > 10_000)

run_server(ServerProcess("thing", "info", False, ()), serve)
run_server(ServerProcess("thing", "info", False, (), 10 * COLLECT_AFTER_OBJECTS), serve)
"""


async def work(seconds: float = 0, error: Exception | None = None) -> str:
    await asyncio.sleep(seconds)
    if error is not None:
        raise error
    return "done"


async def test_result_of_the_work_is_returned() -> None:
    assert await first_of(work(), asyncio.Event()) == "done"
    with pytest.raises(KeyError):
        await first_of(work(error=KeyError()), asyncio.Event())


async def test_stop_event_cancels_the_work() -> None:
    stopping, ended = asyncio.Event(), asyncio.Event()

    async def endless() -> bool:
        try:
            return await asyncio.Event().wait()
        finally:
            ended.set()

    asyncio.get_running_loop().call_soon(lambda: asyncio.get_running_loop().call_soon(stopping.set))
    assert await first_of(endless(), stopping) is None
    assert ended.is_set()


def start(way: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PROGRAM, way]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@pytest.mark.parametrize("way", ["SIGTERM", "SIGINT", "input ends"])
def test_process_stops_cleanly_on_a_signal(way: str) -> None:
    with start(way) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == '{"id": "it"}\n'
        if way == "input ends":
            process.stdin.close()
        else:
            os.kill(process.pid, signal.Signals[way])
        assert process.wait() == 0
        events = events_of(process)
    stops = [] if way == "input ends" else [f"server stops {way}"]
    assert events == ["server starts", "server serves", *stops, "server stopped"]


@pytest.mark.parametrize(
    ("way", "says", "status"),
    [
        ("fail", "look there", ExitCode.UNAVAILABLE),
        ("busy", "choose another", ExitCode.UNAVAILABLE),
        ("removed", "never serves again", ExitCode.REFUSED),
    ],
)
def test_a_failure_is_one_line_that_says_what_to_do(way: str, says: str, status: int) -> None:
    with start(way) as process:
        assert process.wait() == status
        started, served, event = events_of(process)
    assert (started, served) == ("server starts", "server serves")
    assert event.startswith("thing stopped: ")
    assert says in event


def events_of(process: subprocess.Popen[str]) -> list[str]:
    """Return the events in the log of a process that has ended, with their signals."""
    assert process.stderr is not None
    lines = [json.loads(line) for line in process.stderr.read().splitlines()]
    return [f"{line['event']} {line.get('signal', '')}".strip() for line in lines]


def test_an_exception_that_ends_a_thread_ends_the_process() -> None:
    with start("thread") as process:
        assert process.wait() == ExitCode.UNAVAILABLE
        assert process.stderr is not None
        line = json.loads(process.stderr.read().splitlines()[-1])
    assert line["event"] == "thing stopped: thread it ended by KeyError"
    assert line["traceback"].endswith("KeyError: 1")


def test_imported_objects_are_frozen_and_the_collection_threshold_is_set() -> None:
    done = subprocess.run(
        [sys.executable, "-c", COLLECTED], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines() == ["20000 True", "200000 True"]
