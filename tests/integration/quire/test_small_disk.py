"""Test of a bookie's small disk that fills up, and is writable again after ledgers are deleted."""

import json
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.quire.command import RunningCluster, run_quire, start_quire
from tests.until import WAIT_S

CAPACITY = 72 * 2**20
PIECE = b"".join(b"%07d %s\n" % (number, b"x" * 1000) for number in range(8_000))
PIECES_MAX = 15


@pytest.mark.long
def test_a_full_disk_is_writable_again_after_deletions() -> None:
    process = start_quire("up", "--bookies", "1", "--capacity", str(CAPACITY), "-o", "json")
    try:
        assert process.stdout is not None
        cluster = RunningCluster(process, json.loads(process.stdout.readline()))
        admin_url = cluster.told["bookies"][0]["admin_url"]
        words = ("ledger", "append", "--ensemble", "1", "--write", "1", "--ack", "1", "-o", "json")
        ledgers: list[int] = []
        for _ in range(PIECES_MAX):
            done = run_quire(*words, metadata=cluster.metadata, stdin=PIECE)
            if done.returncode:
                break
            ledgers.append(json.loads(done.stdout)["ledger_id"])
        assert 3 <= len(ledgers) < PIECES_MAX, "the disk never filled up"
        state = state_of(admin_url)
        assert not state["writable"]
        assert "log" in [condition["where"] for condition in state["conditions"]]
        for ledger_id in ledgers[1:]:
            assert cluster.run("ledger", "delete", str(ledger_id), "--yes").returncode == 0
        until(lambda: bool(state_of(admin_url)["writable"]))
        # It may be full again until all of the ledgers are collected.
        until(lambda: run_quire(*words, metadata=cluster.metadata, stdin=PIECE).returncode == 0)
        kept = run_quire("ledger", "read", str(ledgers[0]), metadata=cluster.metadata)
        assert kept.stdout == PIECE
    finally:
        process.kill()
        process.communicate()


def state_of(admin_url: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{admin_url}/api/v1/state", timeout=WAIT_S) as answer:
        state: dict[str, Any] = json.load(answer)
        return state


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"it was not so within {WAIT_S} s"
        time.sleep(0.2)
