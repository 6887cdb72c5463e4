"""Calls of the blocking client that cannot end as wanted end with a typed error: after a fork,
beside a close by another thread, without a thread, and inside themselves.
"""

import asyncio
import math
import os
import signal
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, cast

import pytest

from ledger_client import ClientClosedError, LedgerError, QuorumTimeoutError
from ledger_client.sync_handles import LedgerWriter
from ledger_client.sync_loop import BackgroundLoop
from metadata.ids import LedgerId

if TYPE_CHECKING:
    from ledger_client.writing.writer import LedgerWriter as AsyncWriter

WAIT_S = 10.0


class Appends:
    """A writer that confirms at once."""

    ledger_id = LedgerId(7)
    has_ended = True

    async def append(self, data: bytes, *, timeout: float | None = None) -> int:
        return len(data)

    async def append_many(self, entries: list[bytes], *, timeout: float | None = None) -> range:
        return range(len(list(entries)))

    async def aclose(self, *, timeout: float | None = None) -> None:
        return


@pytest.fixture
def background() -> Iterator[BackgroundLoop]:
    background = BackgroundLoop()
    yield background
    background.stop()


def writer_on(background: BackgroundLoop) -> LedgerWriter:
    return LedgerWriter(background, cast("AsyncWriter", Appends()))


class Held:
    """A thread in the middle of an `append_many`."""

    def __init__(self, writer: LedgerWriter) -> None:
        self._begun, self._resumed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=writer.append_many, args=(self._entries(),))

    def _entries(self) -> Iterator[bytes]:
        yield b"a"
        self._begun.set()
        self._resumed.wait(WAIT_S)

    def __enter__(self) -> None:
        self._thread.start()
        self._begun.wait(WAIT_S)

    def __exit__(self, *_: object) -> None:
        self._resumed.set()
        self._thread.join(WAIT_S)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_does_not_wait_for_a_lock_of_a_thread_of_its_parent(
    background: BackgroundLoop,
) -> None:
    writer = writer_on(background)
    with Held(writer), background._lock:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # there are other threads
            child = os.fork()
        if child == 0:
            refused = 0
            try:
                for call in (writer.append, writer.append_nowait, lambda _: writer.close()):
                    try:
                        call(b"child")
                    except ClientClosedError:
                        refused += 1
                background.stop()
            finally:
                os._exit(refused)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 3


def test_an_append_waits_for_its_turn_within_its_timeout(background: BackgroundLoop) -> None:
    writer = writer_on(background)
    with Held(writer), pytest.raises(QuorumTimeoutError, match="nothing was sent") as raised:
        writer.append(b"b", timeout=0.05)
    assert raised.value.outcome == "not_written"
    assert writer.append(b"bb", timeout=WAIT_S) == 2


def test_an_append_may_have_any_long_timeout(background: BackgroundLoop) -> None:
    """Also one that a lock cannot take."""
    assert writer_on(background).append(b"bb", timeout=math.inf) == 2


class InterruptedLock:
    """Lock at which Ctrl-C arrives: its caller has the lock, and does not learn it."""

    def __init__(self, lock: Any) -> None:
        self._lock = lock
        self.is_interrupted = True

    def acquire(self, *args: object, **options: object) -> bool:
        taken = self._lock.acquire(*args, **options)
        if self.is_interrupted:
            signal.raise_signal(signal.SIGINT)
        return bool(taken)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lock, name)


def test_an_interrupt_ends_the_turn_of_its_call(background: BackgroundLoop) -> None:
    writer = writer_on(background)
    lock = InterruptedLock(writer._order._lock)
    writer._order._lock = lock  # type: ignore[assignment]  # of the same kind
    with pytest.raises(KeyboardInterrupt):
        writer.append(b"a")
    lock.is_interrupted = False
    with ThreadPoolExecutor(1) as another:
        assert another.submit(writer.append, b"bb", timeout=WAIT_S).result() == 2
    assert writer.append(b"ccc", timeout=WAIT_S) == 3


def test_an_append_inside_an_append_is_refused(background: BackgroundLoop) -> None:
    writer = writer_on(background)

    def entries() -> Iterator[bytes]:
        yield b"a"
        writer.append(b"b")

    with pytest.raises(LedgerError, match="would wait for itself"):
        writer.append_many(entries())
    assert writer.append(b"ccc") == 3


def test_a_call_beside_a_close_ends(
    background: BackgroundLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The caller is held between the check that the client is open and the start of its work."""
    background.run(asyncio.sleep(0))
    reached, resumed = threading.Event(), threading.Event()
    plain, outcomes = asyncio.run_coroutine_threadsafe, list[Exception]()

    def slow(work: object, loop: asyncio.AbstractEventLoop) -> object:
        reached.set()
        resumed.wait(0.2)
        return plain(work, loop)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(asyncio, "run_coroutine_threadsafe", slow)

    def call() -> None:
        try:
            background.run(asyncio.sleep(60))
        except Exception as error:  # noqa: BLE001 - the test shows it
            outcomes.append(error)

    caller = threading.Thread(target=call)
    caller.start()
    reached.wait(WAIT_S)
    background.stop()
    resumed.set()
    caller.join(WAIT_S)
    assert [type(outcome) for outcome in outcomes] == [ClientClosedError]


def test_work_that_begins_while_the_loop_ends_is_cancelled(background: BackgroundLoop) -> None:
    started = []

    async def begin_another() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            started.append(asyncio.get_running_loop().create_task(asyncio.sleep(60)))

    outcome = background.start(begin_another())
    background.run(asyncio.sleep(0))
    background.stop()
    assert outcome.cancelled()
    assert [task.cancelled() for task in started] == [True]


def test_a_thread_that_cannot_start_is_tried_again(
    background: BackgroundLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        with pytest.raises(LedgerError, match="can't start new thread"):
            background.run(asyncio.sleep(0, 1))
    assert background.run(asyncio.sleep(0, 2)) == 2
