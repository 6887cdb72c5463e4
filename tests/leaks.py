"""What a test leaves behind is an error of that test: processes, threads, and files or sockets that
only a garbage collection closes.

Without this, an unclosed file is reported by the test that runs when the collector finds it, and a
process that was left changes what a later test measures.

Invariants: what fixtures of a wider scope open belongs to them: only what appears between a test's
setup and the end of its teardown, and is still there then, counts. Processes count only if there
are more than before. The collector runs only after a
test that ends with more open descriptors than it began with.
"""

import gc
import sys
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from tests.until import WAIT_S

TASKS: Final = Path("/proc/self/task")
FORKING: Final = "tests.support.quire.forks.program"
"""Part of the command of a process that serves all tests, from the first that needs it on."""
DESCRIPTORS: Final = Path("/dev/fd")
KEPT_THREADS: Final = ("asyncio", "execnet")
"""Beginnings of the names of threads that an event loop or the test runner ends itself."""


class Leaks:
    """Plugin of pytest."""

    def __init__(self) -> None:
        self._children: list[int] = []
        self._threads: frozenset[threading.Thread] = frozenset()
        self._descriptors = 0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, None, None]:
        """Note what is open before the fixtures of a test."""
        self._descriptors = _descriptor_count()
        yield
        self._children = [each for each in children() if FORKING not in _described(each)]
        self._threads = frozenset(threading.enumerate())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, None, None]:
        """Fail a test that leaves a process or a thread; make its unclosed files known."""
        yield
        now = [each for each in children() if FORKING not in _described(each)]
        new = [each for each in now if each not in self._children]
        left = []
        if len(now) > len(self._children):  # a server of a wider scope may have been started again
            left = [f"process {_described(each)}" for each in new]
        if item.get_closest_marker("spark") is None:  # Py4J, and the driver's client, keep threads
            left += [f"thread {each.name}" for each in _still_running(self._new_threads())]
        if _descriptor_count() > self._descriptors:
            left += _collected()
        if left:
            pytest.fail(f"left behind: {', '.join(left)}", pytrace=False)

    def _new_threads(self) -> list[threading.Thread]:
        new = [each for each in threading.enumerate() if each not in self._threads]
        return [each for each in new if not each.name.startswith(KEPT_THREADS)]


def _still_running(running: Sequence[threading.Thread]) -> list[threading.Thread]:
    """Wait for threads that were told to end; return those that do not."""
    end_s = time.monotonic() + WAIT_S
    for each in running:
        each.join(max(0.0, end_s - time.monotonic()))
    return [each for each in running if each.is_alive()]


def _collected() -> list[str]:
    """Run the garbage collector; return the warnings of what it closes, which are errors here."""
    warnings: list[str] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda each: warnings.append(str(each.exc_value))
    try:
        gc.collect()
    finally:
        sys.unraisablehook = hook
    return warnings


def children() -> Iterator[int]:
    """Yield the ids of this process's children; none where the system does not list them."""
    with suppress(OSError):
        for task in TASKS.iterdir():
            with suppress(OSError):  # a thread that has ended
                yield from map(int, (task / "children").read_text().split())


def _described(process: int) -> str:
    with suppress(OSError):
        command = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ")
        return f"{process} ({command.decode(errors='replace').strip()})"
    return str(process)


def _descriptor_count() -> int:
    return sum(1 for _ in DESCRIPTORS.iterdir()) if DESCRIPTORS.exists() else 0
