"""What a test leaves behind is an error of that test: processes, threads, files and sockets, and
what it changed of this process.

Without this, an unclosed file is reported by the test that runs when the collector finds it, a
process that was left changes what a later test measures, and a changed variable what it does.

Invariants: a test is compared with what its wider fixtures, which are set up first and end last,
gave it; what one of them opens or changes later, while it is set up, is that fixture's. Processes
count only if there are more than before, or than before earlier tests ended some: a test may start
a server of a wider scope again. The collector runs only after a test that ends with another open
descriptor than it began with. All processes of the machine are searched only after a test that
forked one, or waited for a child, or has other children than before.

Leaves out, because they may belong to the wider fixture: sockets, pipes and threads of event loops
in a test that uses a fixture of a wider scope which has a descriptor open, such as a loop or a
client; and processes that a forked server asked for, such as repair.
"""

import gc
import os
import resource
import signal
import stat
import sys
import threading
import time
import traceback
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
import uvloop

from tests.support.quire.forks.forking import FORKED, FORKS, PROGRAM
from tests.until import LOOK_S, WAIT_S

TASKS: Final = "/proc/{}/task"
DESCRIPTORS: Final = "/dev/fd"
STARTED_BY: Final = "STARTED_BY_TESTS"
"""Variable that processes get from a test process: its id."""
SIGNALS: Final = frozenset(signal.Signals) - {signal.SIGALRM}
"""Without the one that limits the time of a test."""
ANONYMOUS: Final = 0
CONNECTIONS: Final = (stat.S_IFSOCK, stat.S_IFIFO, ANONYMOUS)
"""What a client, or an event loop, of a wider scope opens while tests use it."""
RUNNERS_THREADS: Final = "execnet"
"""Beginning of the names of threads that the test runner ends itself."""
LOOPS_THREADS: Final = "asyncio_"
"""Beginning of the names of threads that an event loop ends when it is closed."""


class Open(NamedTuple):
    """A descriptor, and the file that it leads to."""

    number: int
    kind: int
    device: int
    inode: int


class Leaks:
    """Plugin of pytest."""

    def __init__(self) -> None:
        os.environ[STARTED_BY] = str(os.getpid())
        uvloop.new_event_loop().close()  # the first opens a pipe for all
        self._before: _Found | None = None
        self._searched = _Searched()
        self._opening: set[str] = set()
        self._running_count = 0
        """Processes after the last test."""
        self._ended_count = 0
        """Processes of wider fixtures that tests ended, without those that tests left."""

    @pytest.fixture(autouse=True)
    def _nothing_is_left(self, request: pytest.FixtureRequest) -> Iterator[None]:
        """Fail a test that leaves something. This is the first and last fixture of its scope."""
        self._before = before = _Found(self._searched)
        if before.process_count < self._running_count:
            self._ended_count = 0  # a wider fixture has ended
        yield
        self._before = None
        allowed = max(self._ended_count, 0)
        left = [f"process {_described(process)}" for process in before.left_processes(allowed)]
        self._running_count = len(_children()) + len(_forked())
        self._ended_count += before.process_count - self._running_count
        if request.node.get_closest_marker("spark") is None and not _has_spark():
            shared = not self._opening.isdisjoint(request.fixturenames)
            left += [f"thread {thread.name}" for thread in before.left_threads(shared)]
            left += before.left_open(shared)
        left += before.changes()
        if left:
            pytest.fail(f"left behind: {', '.join(left)}", pytrace=False)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any]
    ) -> Generator[None, object, object]:
        """Note what a fixture of a wider scope opens and changes."""
        if fixturedef.scope == "function":
            return (yield)
        earlier = _Found(self._searched)
        result = yield
        later = _Found(self._searched)
        if any(each.kind in CONNECTIONS for each in later.open - earlier.open):
            self._opening.add(fixturedef.argname)
        if self._before is not None:
            self._before.adopt(earlier, later)
        return result


class _Found:
    """What there is of each kind at one time."""

    def __init__(self, searched: "_Searched") -> None:
        self._searched = searched
        self.children, self.forked = _children(), _forked()
        self.orphans = searched.orphans(self.children)
        self.threads = frozenset(threading.enumerate())
        self.open = _open_descriptors()
        self.state = _state()

    def adopt(self, earlier: "_Found", later: "_Found") -> None:
        """Count what came, or changed, between two times as there before."""
        self.children |= later.children - earlier.children
        self.forked |= later.forked - earlier.forked
        self.orphans |= later.orphans - earlier.orphans
        self.threads |= later.threads - earlier.threads
        self.open |= later.open - earlier.open
        self.state |= dict(later.state.items() - earlier.state.items())

    @property
    def process_count(self) -> int:
        return len(self.children) + len(self.forked)

    def left_processes(self, allowed: int) -> list[int]:
        """Return the new processes if they are more than before by more than `allowed`. Those that
        end by themselves, with another, have time.
        """
        return [
            *_more(self.children, _children(), allowed),
            *_once_ended(lambda: _more(self.forked, _forked(), allowed)),
            *_once_ended(lambda: self._searched.orphans(_children()) - self.orphans),
        ]

    def left_threads(self, shared: bool) -> list[threading.Thread]:
        kept = (RUNNERS_THREADS, LOOPS_THREADS) if shared else RUNNERS_THREADS
        new = [thread for thread in threading.enumerate() if thread not in self.threads]
        return _still_running([thread for thread in new if not thread.name.startswith(kept)])

    def left_open(self, shared: bool) -> list[str]:
        """Return the new descriptors, and what the collector says of those that it closes."""
        if _open_descriptors() <= self.open:
            return []
        unclosed = _collected()
        left = [
            f"descriptor {descriptor.number} ({_target(descriptor)})"
            for descriptor in sorted(_open_descriptors() - self.open)
            if not (shared and descriptor.kind in CONNECTIONS)
        ]
        return unclosed + left

    def changes(self) -> list[str]:
        now = _state()
        if now == self.state:
            return []
        changed = sorted(each for each, _ in now.items() ^ self.state.items())
        return [f"changed {each}" for each in dict.fromkeys(changed)]


class _Searched:
    """The orphans of the last search, and what is other when there may be one more."""

    def __init__(self) -> None:
        self._when: tuple[int, ...] = ()
        self._orphans: frozenset[int] = frozenset()

    def orphans(self, children: Iterable[int]) -> frozenset[int]:
        """Return the processes that were started here, and whose parents have ended."""
        when = (resource.getrusage(resource.RUSAGE_CHILDREN).ru_minflt, *children)
        if when != self._when or self._orphans or FORKS:
            self._when, self._orphans = when, frozenset(_orphans())
        return self._orphans


def _more(before: Collection[int], now: Collection[int], allowed: int) -> list[int]:
    is_more = len(now) > len(before) + allowed
    return [each for each in now if each not in before] if is_more else []


def _once_ended(left: Callable[[], Collection[int]]) -> Collection[int]:
    """Wait for processes that end; return those that do not."""
    end_s = time.monotonic() + WAIT_S
    while (alive := left()) and time.monotonic() < end_s:
        time.sleep(LOOK_S)
    return alive


def _still_running(running: Sequence[threading.Thread]) -> list[threading.Thread]:
    """Wait for threads that were told to end; return those that do not."""
    end_s = time.monotonic() + WAIT_S
    for thread in running:
        thread.join(max(0.0, end_s - time.monotonic()))
    return [thread for thread in running if thread.is_alive()]


def _let_go() -> None:
    """Drop the variables of the last failure, so that the collector closes here what it left open,
    and not in a later test.
    """
    errors: list[BaseException | None] = [getattr(sys, "last_value", None)]
    for error in errors:
        if error is not None:
            for frame, _ in traceback.walk_tb(error.__traceback__):
                with suppress(RuntimeError):  # it runs
                    frame.clear()
                _ = frame.f_locals  # Python 3.11 and 3.12 keep a copy, which this renews
            errors += getattr(error, "exceptions", ())
            errors += (error.__cause__, error.__context__)


def _collected() -> list[str]:
    """Run the garbage collector; return the warnings of what it closes, which are errors here."""
    warnings: list[str] = []
    hook, sys.unraisablehook = sys.unraisablehook, lambda each: warnings.append(str(each.exc_value))
    try:
        _let_go()
        gc.collect()
    finally:
        sys.unraisablehook = hook
    return warnings


def _open_descriptors() -> frozenset[Open]:
    """Return the descriptors of this process, without what all tests share."""
    found: list[Open] = []
    kept = {fork.fileno() for fork in FORKS}
    with suppress(OSError):
        for name in os.listdir(DESCRIPTORS):  # noqa: PTH208  quicker
            with suppress(OSError):  # the one of this list
                found.append(_opened(int(name)))
    return frozenset(each for each in found if each.number not in kept)


def _opened(number: int) -> Open:
    status = os.fstat(number)
    return Open(number, stat.S_IFMT(status.st_mode), status.st_dev, status.st_ino)


def _target(opened: Open) -> str:
    with suppress(OSError):
        return os.readlink(f"{DESCRIPTORS}/{opened.number}")  # noqa: PTH115  it need not exist
    return "unknown"


def _state() -> dict[str, object]:
    """Return what a test must put back."""
    umask = os.umask(0)
    os.umask(umask)
    state: dict[str, object] = {f"variable {name}": value for name, value in os.environ.items()}
    state.pop("variable PYTEST_CURRENT_TEST", None)
    state |= {f"handler of {signals.name}": signal.getsignal(signals) for signals in SIGNALS}
    with suppress(FileNotFoundError):
        state["working directory"] = os.getcwd()  # noqa: PTH109  quicker
    return state | {"umask": umask}


def _children() -> frozenset[int]:
    """Return this process's children, but not the program that forks others."""
    return frozenset(child for child in _children_of("self") if PROGRAM not in _described(child))


def _forked() -> frozenset[int]:
    """Return what runs of what the program that forks did for this process."""
    if not FORKS:
        return frozenset()
    programs = {child for child in _children_of("self") if PROGRAM in _described(child)}
    return frozenset(each for each in FORKED.copy() if _parent(each) in programs)


def _children_of(process: int | str) -> Iterator[int]:
    """Yield the ids of a process's children; none where the system does not list them. The system
    may leave some out while others end.
    """
    with suppress(OSError):
        for task in os.listdir(TASKS.format(process)):  # noqa: PTH208  quicker
            with suppress(OSError):  # a thread that has ended
                path = Path(TASKS.format(process), task, "children")
                yield from map(int, path.read_text().split())


def _processes() -> Iterator[int]:
    """Yield the ids of all processes of the machine."""
    with suppress(OSError):
        yield from (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208


def _orphans() -> Iterator[int]:
    return (process for process in _processes() if _is_ours(process) and not _is_below(process))


def _is_ours(process: int) -> bool:
    with suppress(OSError):
        variables = Path(f"/proc/{process}/environ").read_bytes()
        return f"\0{STARTED_BY}={os.getpid()}\0".encode() in b"\0" + variables
    return False


def _is_below(process: int) -> bool:
    """Return whether this process is an ancestor of a process, or that has ended."""
    while process > 1 and process != os.getpid():
        process = _parent(process)
    return process != 1


def _parent(process: int) -> int:
    with suppress(OSError):
        status = Path(f"/proc/{process}/stat").read_text()
        return int(status.rpartition(")")[2].split()[1])
    return 0


def _has_spark() -> bool:
    """Return whether a Spark session runs here: Py4J, and its client, keep threads and sockets."""
    context = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    return context is not None and context._gateway is not None


def _described(process: int) -> str:
    with suppress(OSError):
        command = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ")
        return f"{process} ({command.decode(errors='replace').strip()})"
    return str(process)
