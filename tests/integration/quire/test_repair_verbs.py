"""Tests of the verbs about repair, and about bookies that leave, with a real cluster."""

import json

from quire.errors import ExitCode
from tests.integration.quire.command import RunningCluster


def test_settings_are_changed_while_the_cluster_runs(cluster: RunningCluster) -> None:
    assert cluster.json("repair", "throttle", "80MB/s")["bytes_per_s"] == 80_000_000
    paused = cluster.json("repair", "pause", "--for", "30m")
    assert paused["paused_until_ms"] > 0
    status = cluster.json("repair", "status")
    assert status["paused_until_ms"] == paused["paused_until_ms"]
    assert status["bytes_per_s_max"] == 80_000_000
    assert cluster.json("repair", "resume")["paused_until_ms"] == 0
    assert cluster.run("repair", "settings", "speed=1").returncode == ExitCode.USAGE
    assert cluster.run("repair", "throttle", "fast").returncode == ExitCode.USAGE
    text = cluster.run("repair", "status").stdout.decode()
    assert text.startswith("state ")


def test_a_ledger_that_needs_nothing(cluster: RunningCluster) -> None:
    words = ("ledger", "append", "--ensemble", "3", "--write", "3", "--ack", "2")
    ledger = str(cluster.json(*words, stdin=b"one\n")["ledger_id"])
    explained = cluster.json("repair", "explain", ledger)
    assert explained["repair"] == "It needs no repair."
    assert len(explained["fragments"][0]["bookies"]) == 3
    assert cluster.json("repair", "run", ledger)[0]["ledger"] == int(ledger)
    assert cluster.run("repair", "explain", "999999999").returncode == ExitCode.NOT_FOUND


def test_a_bookie_is_drained_and_used_again(cluster: RunningCluster) -> None:
    words = ("ledger", "append", "--ensemble", "4", "--write", "4", "--ack", "3")
    cluster.json(*words, stdin=b"one\n")
    bookie = cluster.told["bookies"][3]["id"]
    planned = cluster.run("bookie", "drain", bookie, "--dry-run", "-o", "json")
    assert planned.returncode == ExitCode.FINDINGS
    plan = json.loads(planned.stdout)
    assert plan["blocked"]["needs 4 other writable bookies, has 3"] >= 1
    assert bookie not in [each["target"] for each in plan["targets"]]
    assert cluster.run("bookie", "remove", bookie).returncode == ExitCode.REFUSED
    try:
        drained = cluster.json("bookie", "drain", bookie, "--reason", "old machine")
        assert (drained["lifecycle"], drained["reason"]) == ("draining", "old machine")
        listed = {row["id"]: row["lifecycle"] for row in cluster.json("bookie", "list")}
        assert listed[bookie] == "draining"
        states = [row["id"] for row in cluster.json("repair", "status")["bookies"]]
        assert states == [bookie]
        assert cluster.run("bookie", "remove", bookie).returncode == ExitCode.REFUSED
        health = json.loads(cluster.run("cluster", "health", "-o", "json").stdout)
        assert f"bookie {bookie}" in [each["where"] for each in health["warnings"]]
    finally:
        assert cluster.json("bookie", "undrain", bookie)["lifecycle"] == "active"
