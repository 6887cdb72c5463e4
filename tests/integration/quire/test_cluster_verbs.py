"""Tests of the verbs about bookies, the cluster and its metadata, with a real cluster."""

import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from quire.errors import ExitCode
from tests.integration.quire.command import TIMEOUT_S, RunningCluster, run_quire, start_quire
from tests.until import WAIT_S


def test_up_prints_all_addresses(cluster: RunningCluster) -> None:
    told = cluster.told
    assert told["metadata"].startswith("zk://127.0.0.1:")
    assert len({bookie["id"] for bookie in told["bookies"]}) == 4
    for bookie in told["bookies"]:
        host, port = bookie["address"].split(":")
        socket.create_connection((host, int(port)), timeout=WAIT_S).close()
        assert Path(f"/proc/{bookie['pid']}").exists() or not Path("/proc").exists()
    assert told["brokers"] == []


def test_bookies_are_listed_and_described(cluster: RunningCluster) -> None:
    rows = cluster.json("bookie", "list")
    assert [row["state"] for row in rows] == ["up"] * 4
    assert {row["id"] for row in rows} == {each["id"] for each in cluster.told["bookies"]}
    one = cluster.json("bookie", "info", rows[0]["id"])
    assert one["address"] == rows[0]["address"]
    assert one["admin"]["ready"] is True
    with urlopen(f"{one['admin_url']}/livez", timeout=WAIT_S) as answer:
        assert json.load(answer) == {"status": "live"}


def test_an_unknown_bookie(cluster: RunningCluster) -> None:
    assert cluster.run("bookie", "info", "no-such-bookie").returncode == ExitCode.NOT_FOUND


def test_a_table_for_people(cluster: RunningCluster) -> None:
    lines = cluster.run("bookie", "list").stdout.decode().splitlines()
    assert lines[0].split() == [
        "ID",
        "STATE",
        "LIFECYCLE",
        "CONDITIONS",
        "STOPPED",
        "ADDRESS",
        "LOCATION",
        "HOST",
        "FREE",
        "BYTES",
        "ADMIN",
        "URL",
    ]
    assert len(lines) == 5


def test_a_healthy_cluster(cluster: RunningCluster) -> None:
    for _ in range(2):
        cluster.json("ledger", "append", stdin=b"one\n")
    told = cluster.json("cluster", "health")
    deadline = time.monotonic() + TIMEOUT_S
    while told["warnings"] and time.monotonic() < deadline:
        time.sleep(0.5)
        told = cluster.json("cluster", "health")
    assert told["warnings"] == []
    assert told["is_healthy"]
    assert (told["bookies_up"], told["bookies_writable"], told["hosts_up"]) == (4, 4, 4)
    assert told["ledgers"]["closed"] >= 1
    assert told["state"].startswith("Healthy: losing ")


def test_an_operator_makes_a_bookie_read_only_and_writable_again(cluster: RunningCluster) -> None:
    bookie = cluster.told["bookies"][2]["id"]
    told = cluster.json("bookie", "readonly", bookie, "on")
    assert (told["read_only"], told["writable"]) == (True, False)
    try:
        info = wait_for_conditions(cluster, bookie, ["operator"])
        assert (info["state"], info["admin"]["writable"]) == ("read-only", False)
        assert info["admin"]["conditions"][0]["try_next"] == "quire bookie readonly ID off"
        health = cluster.run("cluster", "health", "-o", "json")
        assert health.returncode == ExitCode.FINDINGS
        (finding,) = json.loads(health.stdout)["findings"]
        assert finding["where"] == f"bookie {bookie}"
        assert finding["advice"] == f"quire bookie readonly {bookie} off"
        with urlopen(f"{info['admin_url']}/metrics", timeout=WAIT_S) as answer:
            assert b'quire_bookie_read_only{reason="operator"} 1.0' in answer.read()
    finally:
        assert cluster.json("bookie", "readonly", bookie, "off")["writable"] is True
    assert wait_for_conditions(cluster, bookie, [])["state"] == "up"
    assert cluster.json("cluster", "health")["is_healthy"]


def wait_for_conditions(cluster: RunningCluster, bookie: str, wanted: list[str]) -> Any:
    """Wait until a bookie's registration has these conditions; return the output of `info`."""
    deadline = time.monotonic() + TIMEOUT_S
    while (info := cluster.json("bookie", "info", bookie))["conditions"] != wanted:
        assert time.monotonic() < deadline, info["conditions"]
    return info


def test_metadata_is_sound_and_dumped(cluster: RunningCluster) -> None:
    ledger = cluster.json("ledger", "append", stdin=b"one\n")["ledger_id"]
    told = cluster.json("metadata", "check")
    assert told["findings"] == []
    dump = [json.loads(line) for line in cluster.run("metadata", "dump").stdout.splitlines()]
    kinds = {row["kind"] for row in dump}
    assert {"dump", "instance", "cookie", "ledger", "end"} <= kinds
    assert ledger in [row.get("ledger_id") for row in dump]


def test_what_would_be_lost_with_some_bookies(cluster: RunningCluster) -> None:
    words = ("ledger", "append", "--ensemble", "3", "--write", "3", "--ack", "2")
    ledger = cluster.json(*words, stdin=b"one\n")["ledger_id"]
    shown = cluster.json("ledger", "show", str(ledger))
    members = shown["fragments"][0]["ensemble"]
    other = next(b["id"] for b in cluster.told["bookies"] if b["id"] not in members)

    def losing(*bookies: str) -> tuple[int, list[str]]:
        done = cluster.run("cluster", "if-lost", *bookies, "-o", "json")
        rows = json.loads(done.stdout)["ledgers"]
        return done.returncode, [row["loss"] for row in rows if row["ledger"] == ledger]

    assert losing(other)[1] == []
    assert losing(members[0])[1] == []
    assert losing(*members[:2]) == (ExitCode.FINDINGS, ["may be unreadable"])
    assert losing(*members) == (ExitCode.FINDINGS, ["unreadable"])
    assert cluster.run("cluster", "if-lost", "no-such-bookie").returncode == ExitCode.NOT_FOUND


def test_nothing_is_written_where_no_cluster_is_and_init_creates_one(
    cluster: RunningCluster, tmp_path: Path
) -> None:
    wrong = f"{cluster.told['metadata']}-typo"
    bookie = ("--data-dir", str(tmp_path), "--metadata", wrong)
    for words in (
        ("cluster", "health"),
        ("ledger", "create"),
        ("bookie", "list"),
        ("bookie", "format", *bookie),
        ("bookie", "run", "--format-if-empty", "bookie", *bookie),
    ):
        done = run_quire(*words, "-o", "json", metadata=wrong)
        assert done.returncode == ExitCode.NOT_FOUND, done.stderr
        assert "quire cluster init" in json.loads(done.stderr)["message"]
    init = ("cluster", "init", "-o", "json")
    created = [json.loads(run_quire(*init, metadata=wrong).stdout) for _ in range(2)]
    assert [each["created"] for each in created] == [True, False]
    assert created[0]["instance"] == created[1]["instance"]
    health = json.loads(run_quire("cluster", "health", "-o", "json", metadata=wrong).stdout)
    assert health["state"] == "Healthy: there are no entries."


@pytest.mark.long
def test_an_unreachable_cluster_is_reported() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"
        verbs = (("ledger", "list"), ("bookie", "list"), ("ledger", "create"))
        started = [
            start_quire(*words, "-o", "json", metadata=f"zk://{address}/quire") for words in verbs
        ]
        for command in started:
            _, errors = command.communicate(timeout=TIMEOUT_S)
            assert command.returncode == ExitCode.UNAVAILABLE, errors
            assert address in json.loads(errors)["message"]


def test_a_malformed_address_is_a_usage_error() -> None:
    done = run_quire("ledger", "list", metadata="http://nowhere")
    assert done.returncode == ExitCode.USAGE
    assert b"zk://" in done.stderr


def test_an_ended_server_is_reported() -> None:
    process = start_quire("up", "--bookies", "1", "-o", "json")
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        [bookie] = json.loads(process.stdout.readline())["bookies"]
        os.kill(bookie["pid"], signal.SIGKILL)
        assert any(b"bookie-1 has ended" in line for line in process.stderr)
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == ExitCode.DONE
    finally:
        process.kill()
        process.communicate()
