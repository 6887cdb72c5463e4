"""Tests of every verb about topics, as a process, with a real cluster with brokers."""

import asyncio
import json
import time
from collections.abc import Iterator
from random import Random
from typing import Any
from uuid import UUID

import pytest
from kafka import KafkaAdminClient, TopicPartition

from metadata.store.zookeeper.store import open_store
from metadata.topics.partition import PartitionKey, PartitionSegment
from metadata.topics.partition_store import PartitionStore
from metadata.topics.topic import TopicId
from quire.errors import ExitCode
from tests.integration.quire.command import (
    TIMEOUT_S,
    RunningCluster,
    start_cluster,
    start_quire,
)
from tests.support.pausing import paused

pytestmark = pytest.mark.long

ASK_EVERY_S = 0.25


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    running = start_cluster(tmp_path_factory.mktemp("cluster"), bookies=3, brokers=2)
    yield running
    running.stop()


def test_a_topic_from_creation_to_deletion(cluster: RunningCluster) -> None:
    settings = ("--set", "retention.ms=3600000", "--set", "min.insync.replicas=2")
    made = cluster.json("topic", "create", "orders", "--partitions", "4", *settings)
    assert (made["partitions"], made["replication"]) == (4, 3)
    assert cluster.run("topic", "create", "orders").returncode == ExitCode.REFUSED
    assert [each["topic"] for each in cluster.json("topic", "list")] == ["orders"]

    lines = b"".join(b"%d\n" % n for n in range(500))
    assert cluster.json("topic", "produce", "orders", stdin=lines)["records"] == 500
    read = cluster.run("topic", "consume", "orders")
    assert sorted(map(int, read.stdout.split())) == list(range(500))

    shown = cluster.json("topic", "show", "orders")
    assert {each["state"] for each in shown["partitions"]} == {"served"}
    assert sum(each["end"] for each in shown["partitions"]) == 500
    assert {each["leader"] for each in shown["partitions"]} == {1, 2}
    assert shown["settings"] == {"retention.ms": "3600000", "min.insync.replicas": "2"}

    assert cluster.json("topic", "grow", "orders", "5")["partitions"] == 5
    elected = cluster.json("topic", "elect", "orders")
    assert [each["outcome"] for each in elected] == ["election not needed"] * 5
    refused = cluster.run("topic", "delete", "orders")
    assert refused.returncode == ExitCode.REFUSED
    assert b"nothing was changed" in refused.stderr
    assert cluster.run("topic", "delete", "orders", "--yes").returncode == ExitCode.DONE
    assert cluster.run("topic", "show", "orders").returncode == ExitCode.NOT_FOUND
    assert cluster.json("topic", "list") == []


def test_settings_are_altered_and_wrong_ones_named(cluster: RunningCluster) -> None:
    cluster.json("topic", "create", "settings")
    words = ("topic", "config", "settings")
    assert cluster.json(*words, "--set", "retention.ms=5")["settings"] == {"retention.ms": "5"}
    assert cluster.json(*words, "--unset", "retention.ms")["settings"] == {}
    assert "segment.bytes" in cluster.json(*words, "--all")["settings"]
    changed = cluster.json(*words, "--set", "flush.ms=5", "--set", "retention.ms=5")
    assert changed["settings_without_effect"] == ["flush.ms"]
    shown = cluster.json("topic", "show", "settings")
    assert shown["settings_without_effect"] == ["flush.ms"]
    refused = cluster.run(*words, "--set", "retenton.ms=5")
    assert refused.returncode == ExitCode.REFUSED
    assert b"did you mean retention.ms?" in refused.stderr


def test_keys_and_positions_are_kept(cluster: RunningCluster) -> None:
    cluster.json("topic", "create", "keyed", "--partitions", "2")
    cluster.json(
        "topic", "produce", "keyed", "--key-separator", ":", "--partition", "1", stdin=b"a:1\nb:2"
    )
    done = cluster.run("topic", "consume", "keyed", "--partition", "1", "--from", "1", "-o", "json")
    (record,) = [json.loads(line) for line in done.stdout.splitlines()]
    assert (record["offset"], record["key"], record["value"]) == (1, "b", "2")
    assert cluster.run("topic", "consume", "none").returncode == ExitCode.NOT_FOUND
    missing = cluster.run("topic", "produce", "keyed", "--key-separator", ":", stdin=b"nothing\n")
    assert missing.returncode == ExitCode.USAGE


def test_a_broker_may_be_named_by_its_address(cluster: RunningCluster) -> None:
    address = cluster.told["brokers"][0]["address"]
    assert cluster.run("topic", "list", "--bootstrap", address).returncode == ExitCode.DONE
    assert cluster.run("topic", "list", "--bootstrap", "here").returncode == ExitCode.USAGE
    away = cluster.run("topic", "list", "--bootstrap", "127.0.0.1:1")
    assert away.returncode == ExitCode.UNAVAILABLE
    unknown = cluster.run("topic", "list", "--listener", "NONE")
    assert unknown.returncode == ExitCode.UNAVAILABLE


def test_wrong_uses_are_refused_with_the_reason(cluster: RunningCluster) -> None:
    cluster.json("topic", "create", "wrong")
    for words, told in (
        (("produce", "wrong", "--partition", "7"), b"wrong has no partition 7"),
        (("produce", "a/b"), b"'a/b' is not a valid topic name"),
        (("produce", "a/b", "--create"), b"'a/b' is not a valid topic name"),
        (("consume", "a/b"), b"'a/b' is not a valid topic name"),
        (("consume", "wrong", "--partition", "7"), b"wrong has no partition 7"),
        (("produce", "wrong", "--key-separator", ""), b"--key-separator is empty"),
        (("create", "twice", "--set", "retention.ms=1", "--set", "retention.ms=2"), b"once"),
        (("config", "wrong", "--set", "retention.ms=1", "--unset", "retention.ms"), b"once"),
        (("config", "wrong", "--unset", "retenton.ms"), b"no topic setting 'retenton.ms'"),
    ):
        done = cluster.run("topic", *words, stdin=b"x\n")
        assert done.returncode == ExitCode.USAGE, done.stderr
        assert told in done.stderr
    config = cluster.run("topic", "config", "wrong", "--set", "retention.ms=x")
    assert b"quire topic config --help" in config.stderr
    cluster.json("topic", "create", "like.this")
    alike = cluster.run("topic", "create", "like_this")
    assert alike.returncode == ExitCode.REFUSED
    assert b"one name in metrics" in alike.stderr
    assert cluster.run("topic", "delete", "like.this", "--yes").returncode == ExitCode.DONE
    cluster.json("topic", "create", "like_this")
    for verb in ("produce", "consume"):
        internal = cluster.run("topic", verb, "__consumer_offsets", stdin=b"x\n")
        assert internal.returncode == ExitCode.REFUSED, internal.stderr


def test_a_mistyped_name_creates_no_topic(cluster: RunningCluster) -> None:
    for verb, hint in (("produce", b"quire topic create ordres"), ("consume", b"topic list")):
        done = cluster.run("topic", verb, "ordres", stdin=b"x\n")
        assert done.returncode == ExitCode.NOT_FOUND, done.stderr
        assert b"there is no topic 'ordres'" in done.stderr
        assert hint in done.stderr
    assert "ordres" not in [each["topic"] for each in cluster.json("topic", "list")]


def test_a_topic_is_created_on_request(cluster: RunningCluster) -> None:
    for _ in range(2):
        told = cluster.json("topic", "produce", "asked-for", "--create", stdin=b"x\n")
        assert told["records"] == 1
    assert cluster.run("topic", "consume", "asked-for").stdout == b"x\nx\n"


def test_a_topic_decides_how_large_a_record_may_be(cluster: RunningCluster) -> None:
    cluster.json("topic", "create", "large", "--set", "max.message.bytes=8000000")
    cluster.json("topic", "produce", "large", stdin=b"x" * 7_900_000)
    assert len(cluster.run("topic", "consume", "large").stdout) == 7_900_001
    for size in (8_000_000, 12_000_000):
        refused = cluster.run("topic", "produce", "large", stdin=b"x" * size)
        assert refused.returncode == ExitCode.REFUSED, refused.stderr


async def ended_ledgers(cluster: RunningCluster, topic_id: str) -> list[PartitionSegment]:
    """Return the ledgers of partition 0 that have ended."""
    rng = Random(1)
    store = await open_store(cluster.metadata, rng=rng)
    key = PartitionKey(TopicId(UUID(topic_id).bytes), 0)
    record, _ = await PartitionStore(store, rng).get(key)
    await store.aclose()
    return [segment for segment in record.segments if not segment.is_open]


def test_the_oldest_records_are_trimmed(cluster: RunningCluster) -> None:
    made = cluster.json("topic", "create", "trimmed", "--set", "segment.bytes=16384")
    for _ in range(3):
        cluster.json("topic", "produce", "trimmed", stdin=(b"x" * 9_000 + b"\n") * 4)
    words = ("topic", "trim", "trimmed", "--partition", "0")
    refused = cluster.run(*words, "--before", "1")
    assert refused.returncode == ExitCode.REFUSED
    assert b"delete the records of trimmed-0 below offset 1" in refused.stderr
    assert cluster.json(*words, "--before", "1", "--yes")["start"] == 1
    ledgers: list[PartitionSegment] = []
    while len(ledgers) < 2:
        ledgers = asyncio.run(ended_ledgers(cluster, made["id"]))
    lost = ledgers[-1]
    told = cluster.json(*words, "--ledger", str(lost.ledger_id), "--yes")
    assert told == {"topic": "trimmed", "partition": 0, "start": lost.end_offset}
    assert len(cluster.run("topic", "consume", "trimmed").stdout.splitlines()) == 12 - told["start"]

    for wrong, code in (
        (("topic", "trim", "none", "--partition", "0", "--before", "1"), ExitCode.NOT_FOUND),
        (("topic", "trim", "trimmed", "--partition", "7", "--before", "1"), ExitCode.USAGE),
        ((*words, "--ledger", "999999"), ExitCode.NOT_FOUND),
        ((*words, "--before", "99", "--yes"), ExitCode.REFUSED),
        (words, ExitCode.USAGE),
    ):
        done = cluster.run(*wrong)
        assert done.returncode == code, done.stderr


def test_reading_begins_where_the_log_begins(cluster: RunningCluster) -> None:
    cluster.json("topic", "create", "begun")
    cluster.json("topic", "produce", "begun", stdin=b"a\nb\nc\n")
    admin = KafkaAdminClient(bootstrap_servers=cluster.told["brokers"][0]["address"])
    admin.delete_records({TopicPartition("begun", 0): 2})
    admin.close()
    read = cluster.run("topic", "consume", "begun", "--from", "1")
    assert read.stdout == b"c\n"
    assert b"begun-0 begins at 2" in read.stderr
    assert cluster.run("topic", "consume", "begun", "--from", "9").stdout == b""


def shown_partition(cluster: RunningCluster, code: ExitCode) -> dict[str, Any]:
    """Return partition 0 of the topic `short`; nothing if the command ends with another code."""
    done = cluster.run("topic", "show", "short", "-o", "json")
    if done.returncode != code:
        return {}
    row: dict[str, Any] = json.loads(done.stdout)["partitions"][0]
    return row


def test_ledgers_that_lack_copies_are_shown_until_the_bookie_is_back(
    cluster: RunningCluster,
) -> None:
    made = cluster.json("topic", "create", "short", "--set", "segment.bytes=16384")
    for _ in range(3):
        cluster.json("topic", "produce", "short", stdin=(b"x" * 9_000 + b"\n") * 4)
    while not asyncio.run(ended_ledgers(cluster, made["id"])):
        time.sleep(ASK_EVERY_S)
    bookie = cluster.told["bookies"][2]
    admin = KafkaAdminClient(bootstrap_servers=cluster.told["brokers"][0]["address"])

    def partition() -> dict[str, Any]:
        (found,) = admin.describe_topics(["short"])
        row: dict[str, Any] = found["partitions"][0]
        return row

    with paused(bookie["pid"]):  # its session ends
        while not (shown := shown_partition(cluster, ExitCode.FINDINGS)).get("short_ledgers"):
            time.sleep(ASK_EVERY_S)
        assert shown["state"] == f"{shown['short_ledger_count']} ledgers lack copies"
        ledger = shown["short_ledgers"][0]
        assert ledger["why"] == f"{bookie['id']} is away"
        assert ledger["entries"] > 0
        assert ledger["bytes"] > 9_000
        assert b"is away" in cluster.run("topic", "show", "short").stdout
        described = partition()
        assert len(described["isr_nodes"]) < len(described["replica_nodes"])
        (listed,) = [each for each in cluster.json("topic", "list") if each["topic"] == "short"]
        assert listed["replication"] == 3
    while shown_partition(cluster, ExitCode.DONE).get("short_ledgers", "unknown"):
        time.sleep(ASK_EVERY_S)
    admin.close()


def test_a_cluster_without_bookies_is_named_while_records_wait(cluster: RunningCluster) -> None:
    cluster.json("topic", "create", "waiting")
    cluster.json("topic", "produce", "waiting", stdin=b"first\n")
    pids = [each["pid"] for each in cluster.told["bookies"]]
    with paused(*pids):
        command = start_quire("topic", "produce", "waiting", metadata=cluster.metadata)
        assert command.stdin is not None
        assert command.stderr is not None
        command.stdin.write(b"second\n")
        command.stdin.flush()
        remark = command.stderr.readline()
    assert b"no record was acknowledged for 3 s: " in remark
    assert b"bookies do not answer" in remark or b"no bookie is up" in remark
    command.communicate(timeout=TIMEOUT_S)
    assert command.returncode == ExitCode.DONE
    assert cluster.run("topic", "consume", "waiting").stdout == b"first\nsecond\n"
