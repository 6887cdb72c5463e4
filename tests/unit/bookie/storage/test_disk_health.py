"""A hang of the disk and its end are noticed: on the simulated disk in virtual time, and by the
guard of the event loop on a real disk.
"""

import asyncio
import random
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from bookie.config import StorageConfig
from bookie.files import disk_calls
from bookie.files.disk import Buffer, DiskSpace
from bookie.files.disk_real import QUICK_COMMITS_MIN, RealDisk
from bookie.storage.disk_watch import (
    DiskHealth,
    HangGuard,
    RunningOperations,
    describe_use,
    watched,
)
from bookie.storage.writability import Writability
from tests.simulation.disk import CrashableDisk, DiskFaults, Platter
from tests.simulation.loop import run_simulation
from tests.until import until

HUNG_S = 30.0


def test_a_full_disk_is_described_with_both_marks() -> None:
    text = describe_use("log", DiskSpace(total_bytes=1_000, free_bytes=30), StorageConfig())
    assert "97.0% full, the high mark is 95.0%" in text
    assert text.endswith("new entries are accepted again below the low mark, 92.0%")


class Registration:
    """Record of the calls of a registration."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def withdraw(self) -> None:
        self.calls.append("withdraw")

    def restore(self) -> None:
        self.calls.append("restore")


class Watched:
    """A simulated disk, and a check of its health."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.faults = DiskFaults()
        self.under_way = RunningOperations(loop.time)
        plain = CrashableDisk(Platter(), random.Random(1), self.faults)
        self.disk = watched(plain, self.under_way)
        self.writability = Writability(loop.time)
        self.registration = Registration()
        self.health = DiskHealth(self.under_way, HUNG_S, self.writability, self.registration)
        self.health.start()


def test_hanging_write_removes_the_registration_until_it_returns() -> None:
    async def test() -> None:
        it = Watched()
        file = await it.disk.create("log/a")
        it.faults.paused = asyncio.Event()
        writing = asyncio.create_task(file.commit(0, [b"x"]))
        await asyncio.sleep(HUNG_S - 1)
        assert it.health.hung is None
        await asyncio.sleep(4)
        assert it.health.hung is not None
        assert "a write to log/a has not returned for 3" in it.health.hung
        assert not it.writability.is_writable
        assert it.registration.calls == ["withdraw"]
        it.faults.paused.set()
        await writing
        await asyncio.sleep(2)
        assert it.health.hung is None
        assert it.writability.is_writable
        assert it.registration.calls == ["withdraw", "restore"]
        it.health.stop()

    run_simulation(test, 1)


def test_a_commit_of_the_index_that_does_not_return_is_noticed_too() -> None:
    async def test() -> None:
        it = Watched()
        store = await it.disk.open_index("index", 1 << 20)
        it.faults.delay_s_max = 1_000_000.0
        updating = asyncio.create_task(store.update(lambda transaction: None))
        await asyncio.sleep(HUNG_S + 4)
        assert it.health.hung is not None
        assert "a commit of the index" in it.health.hung
        updating.cancel()
        it.health.stop()

    run_simulation(test, 1)


def test_many_quick_writes_are_not_a_hang() -> None:
    async def test() -> None:
        it = Watched()
        file = await it.disk.create("log/a")
        it.faults.delay_s_max = 5.0
        for number in range(40):
            await file.commit(number, [b"x"])
        assert asyncio.get_running_loop().time() > 2 * HUNG_S
        assert it.registration.calls == []
        it.health.stop()

    run_simulation(test, 1)


def test_paused_process_does_not_report_a_hang() -> None:
    async def test() -> None:
        it = Watched()
        file = await it.disk.create("log/a")
        it.faults.paused = asyncio.Event()
        writing = asyncio.create_task(file.commit(0, [b"x"]))
        await asyncio.sleep(0.5)
        late = it.under_way.oldest()
        assert late is not None
        object.__setattr__(late, "began_s", late.began_s - 1_000)  # as after a long SIGSTOP
        await asyncio.sleep(1.1)  # one check
        it.faults.paused.set()
        await writing
        await asyncio.sleep(3)
        assert it.registration.calls == []
        it.health.stop()

    run_simulation(test, 1)


async def test_a_small_write_that_holds_the_event_loop_is_noticed_by_the_guard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way = RunningOperations(time.monotonic)
    disk = watched(RealDisk(tmp_path), under_way)
    file = await disk.create("log/a")
    monkeypatch.setattr(disk_calls, "write_and_sync", lambda *_: 0.0)
    for number in range(QUICK_COMMITS_MIN + 1):
        await file.commit(number, [b"x"])
    given_up: list[str] = []
    may_return = threading.Event()

    def give_up(why: str) -> None:
        given_up.append(why)
        may_return.set()

    def hang(descriptor: int, what: str, offset: int, buffers: Sequence[Buffer]) -> float:
        assert threading.current_thread() is threading.main_thread()
        assert may_return.wait(60)
        return 60.0

    monkeypatch.setattr(disk_calls, "write_and_sync", hang)
    looked_s = time.monotonic()
    guard = HangGuard(under_way, lambda: looked_s, 0.2, give_up, grace_s=0.05)
    await file.commit(100, [b"x"])
    guard.stop()
    assert given_up == ["a write to log/a has held the event loop for 0 s"]
    await file.close()
    await disk.close()


@pytest.mark.real_time
async def test_guard_does_nothing_while_the_loop_checks() -> None:
    under_way = RunningOperations(time.monotonic)
    given_up: list[str] = []
    looks: list[float] = []

    def checked_s() -> float:
        looks.append(time.monotonic())
        return looks[-1]

    guard = HangGuard(under_way, checked_s, 0.05, given_up.append, grace_s=0.01)
    await under_way.run("a write", until(lambda: len(looks) >= 10))
    guard.stop()
    assert given_up == []
