"""Runs the example of docs/key-value-store.md: leaders, replicas, snapshots, lost bookies."""

import asyncio
import importlib.util
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from ledger_client import LedgerClient, LedgerClosedError, LedgerFencedError, LedgerNotFoundError
from tests.integration.quire.command import TIMEOUT_S, RunningCluster, environment

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "docs" / "examples" / "key_value_store.py"


def load() -> ModuleType:
    spec = importlib.util.spec_from_file_location("key_value_store", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


store = load()


@pytest.fixture
async def clients(cluster: RunningCluster) -> AsyncIterator[tuple[LedgerClient, LedgerClient]]:
    async with LedgerClient(cluster.metadata) as one, LedgerClient(cluster.metadata) as other:
        yield one, other


async def followed(replica: Any, wanted: dict[str, str]) -> None:
    """Follow until the replica has a state."""
    async with asyncio.timeout(TIMEOUT_S):
        async for _ in replica.changes():
            if replica.state == wanted:
                return


Clients = tuple[LedgerClient, LedgerClient]


async def test_a_second_leader_continues_and_ends_the_first(clients: Clients) -> None:
    first = await store.Leader.lead(clients[0], "takeover")
    await asyncio.gather(*[first.set(f"key-{n % 7}", str(n)) for n in range(500)])
    await first.set("key-0", None)
    wanted = {f"key-{n % 7}": str(n) for n in range(493, 500) if n % 7}

    second = await store.Leader.lead(clients[1], "takeover")

    assert second._state == wanted
    with pytest.raises(LedgerFencedError):
        await first.set("key-1", "lost")
    with pytest.raises((LedgerFencedError, LedgerClosedError)):
        await first.read("key-1")
    with pytest.raises((LedgerFencedError, LedgerClosedError)):
        await first.snapshot()
    await second.set("key-1", "kept")
    await followed(store.Replica(clients[0], "takeover"), {**wanted, "key-1": "kept"})
    await second.aclose()


async def test_of_two_candidates_one_leads(clients: Clients) -> None:
    first = await store.Leader.lead(clients[0], "contest")
    await first.set("a", "1")
    found = await asyncio.gather(
        *[store.Leader.lead(client, "contest") for client in clients], return_exceptions=True
    )
    leaders = [each for each in found if isinstance(each, store.Leader)]
    assert leaders
    states: list[object] = []
    for number, leader in enumerate(leaders):
        try:
            await leader.set("a", f"by {number}")
        except LedgerFencedError:
            continue
        states.append(leader.get("a"))
    assert len(states) == 1
    assert all(isinstance(each, store.DeposedError | store.Leader) for each in found)


async def test_a_snapshot_replaces_the_log(
    clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "GRACE_S", 0.0)
    monkeypatch.setattr(store, "PAIRS_PER_STEP", 10)
    leader = await store.Leader.lead(clients[0], "snapshots")
    early = store.Replica(clients[1], "snapshots")
    early_changes = early.changes()
    await leader.set("a", "1")
    assert await anext(early_changes) == ("a", "1")
    old_log = leader._log.ledger_id
    for number in range(45):
        await leader.set(str(number), "x")

    changes = [leader.set("a", str(number)) for number in range(20)]
    _, *outcomes = await asyncio.gather(leader.snapshot(), *changes)

    assert outcomes == [None] * 20
    await leader.snapshot()
    await leader.set("b", "2")
    wanted = {**{str(number): "x" for number in range(45)}, "a": "19", "b": "2"}
    assert leader._state == wanted
    info = await clients[0].chain("snapshots").info()
    assert info.next_index - info.first_index == 1
    with pytest.raises(LedgerNotFoundError):
        await clients[0].ledger_info(old_log)

    await followed(store.Replica(clients[1], "snapshots"), wanted)
    async with asyncio.timeout(TIMEOUT_S):
        async for _ in early_changes:
            if early.state == wanted:
                break
    later = await store.Leader.lead(clients[1], "snapshots")
    assert later._state == wanted


async def test_a_cancelled_change_is_made_nevertheless(clients: Clients) -> None:
    leader = await store.Leader.lead(clients[0], "cancelled")
    setting = asyncio.create_task(leader.set("a", "1"))
    await asyncio.sleep(0)
    setting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await setting
    assert await leader.read("a") == "1"


class Programs:
    """Runs of the example as processes; `end` kills them all."""

    def __init__(self, cluster: RunningCluster) -> None:
        self._environment = {**environment(cluster.metadata), "PYTHONPATH": str(ROOT)}
        self._started: list[subprocess.Popen[str]] = []

    def start(self, role: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-W", "error", str(EXAMPLE), role, "shell"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
        )
        self._started.append(process)
        return process

    def end(self) -> None:
        for process in self._started:
            process.kill()
            process.communicate()


@pytest.fixture
def programs(cluster: RunningCluster) -> Iterator[Programs]:
    running = Programs(cluster)
    yield running
    running.end()


def answers(process: "subprocess.Popen[str]", *commands: str) -> list[str]:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("".join(f"{command}\n" for command in commands))
    process.stdin.flush()
    return [process.stdout.readline().strip() for _ in commands]


def test_a_killed_leader_loses_nothing(programs: Programs) -> None:
    first = programs.start("lead")
    assert first.stdout is not None
    assert first.stdout.readline() == "leading\n"
    assert answers(first, "set a 1", "set b two words", "snapshot", "unset a") == ["ok"] * 4
    first.kill()

    second = programs.start("lead")
    assert second.stdout is not None
    assert second.stdout.readline() == "leading\n"
    assert answers(second, "get a", "get b", "set c 3") == ["None", "two words", "ok"]

    follower = programs.start("follow")
    assert follower.stdout is not None
    lines = [follower.stdout.readline().strip() for _ in range(4)]
    assert sorted(lines[:2]) == ["a 1", "b two words"]
    assert lines[2:] == ["a removed", "c 3"]
