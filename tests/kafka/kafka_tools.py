"""Scenarios of Kafka's own tools: administration commands, and the verifiable clients.

Leaves starting Java to `java_process`. Only the essential output of the tools is checked.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from tests.kafka.confluent_calls import new_topic, produce, read_values
from tests.kafka.java_process import events, run_java
from tests.kafka.scenario import RECORDS, TIMEOUT_S, Scenario, check, fresh, values_of

TOOLS: Final = "org.apache.kafka.tools"
TOPICS: Final = f"{TOOLS}.TopicCommand"
GROUPS: Final = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
MESSAGES: Final = 200


def tool(name: str, address: str, *arguments: str) -> str:
    """Run a tool that takes --bootstrap-server."""
    return run_java(name, "--bootstrap-server", address, *arguments)


def topics(address: str) -> None:
    """TopicCommand creates, describes, grows and deletes; nothing is below its minimum."""
    topic = fresh("topic")
    tool(TOPICS, address, "--create", "--topic", topic, "--partitions", "2")
    text = tool(TOPICS, address, "--describe", "--topic", topic)
    check("PartitionCount: 2" in text and text.count("Leader: ") == 2, text)
    tool(TOPICS, address, "--alter", "--topic", topic, "--partitions", "3")
    check("PartitionCount: 3" in tool(TOPICS, address, "--describe", "--topic", topic), "grown")
    for state in ("under-min-isr", "under-replicated", "unavailable", "at-min-isr"):
        text = tool(TOPICS, address, "--describe", "--topic", topic, f"--{state}-partitions")
        check(state == "at-min-isr" or topic not in text, state, text)
    check(topic in tool(TOPICS, address, "--list").split(), "not listed")
    tool(TOPICS, address, "--delete", "--topic", topic)


def groups(address: str) -> None:
    """ConsumerGroupCommand describes, resets and deletes."""
    topic, group = new_topic(address), fresh("group")
    produce(address, topic, values_of())
    _consume(address, topic, group, RECORDS)
    text = tool(GROUPS, address, "--describe", "--group", group)
    row = next(line.split() for line in text.splitlines() if line.startswith(group))
    check(row[1:6] == [topic, "0", str(RECORDS), str(RECORDS), "0"], text)
    check("Empty" in tool(GROUPS, address, "--describe", "--group", group, "--state"), "state")
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--execute")
    text = tool(GROUPS, address, *reset, "--to-offset", "7")
    check(text.split()[-1] == "7", text)
    text = tool(GROUPS, address, *reset, "--to-datetime", "2023-11-14T22:13:30.500+00:00")
    check(text.split()[-1] == "11", text)
    check(group in tool(GROUPS, address, "--list").split(), "not listed")
    tool(GROUPS, address, "--delete", "--group", group)
    check(group not in tool(GROUPS, address, "--list").split(), "still listed")


def _consume(address: str, topic: str, group: str, count: int, *options: str) -> None:
    name = f"{TOOLS}.VerifiableConsumer"
    common = ("--topic", topic, "--group-id", group, "--max-messages", str(count))
    text = tool(name, address, *common, "--reset-policy", "earliest", *options)
    found = [event for event in events(text) if event["name"] == "records_consumed"]
    check(sum(int(str(event["count"])) for event in found) == count, "consumed", text[-500:])


def configs(address: str) -> None:
    """ConfigCommand sets, shows and removes a topic's setting."""
    topic = new_topic(address)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool(CONFIGS, address, "--alter", *entity, "--add-config", "retention.ms=3600000")
    text = tool(CONFIGS, address, "--describe", *entity)
    check("retention.ms=3600000" in text, text)
    tool(CONFIGS, address, "--alter", *entity, "--delete-config", "retention.ms")
    check("retention.ms" not in tool(CONFIGS, address, "--describe", *entity), "still set")
    text = tool(CONFIGS, address, "--describe", *entity, "--all")
    check("cleanup.policy=delete" in text, text)


def offsets(address: str) -> None:
    """GetOffsetShell shows ends, starts and times; DeleteRecordsCommand moves the start."""
    topic = new_topic(address)
    produce(address, topic, values_of())
    shell = f"{TOOLS}.GetOffsetShell"
    expected = {"-1": RECORDS, "-2": 0, "latest": RECORDS, "max-timestamp": RECORDS - 1}
    for when, offset in expected.items():
        text = tool(shell, address, "--topic", topic, "--time", when)
        check(f"{topic}:0:{offset}" in text.split(), when, text)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "offsets.json"
        until = {"partitions": [{"topic": topic, "partition": 0, "offset": 25}], "version": 1}
        file.write_text(json.dumps(until))
        text = tool(f"{TOOLS}.DeleteRecordsCommand", address, "--offset-json-file", str(file))
    check("low_watermark: 25" in text, text)
    text = tool(shell, address, "--topic", topic, "--time", "-2")
    check(f"{topic}:0:25" in text.split(), text)


def elections(address: str) -> None:
    """LeaderElectionCommand finds the preferred leader at work."""
    topic = new_topic(address)
    which = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    text = tool(f"{TOOLS}.LeaderElectionCommand", address, *which)
    check(topic in text and "rror" not in text, text)


def reassignments(address: str) -> None:
    """ReassignPartitionsCommand moves the leader, lists, cancels and verifies."""
    topic = new_topic(address)
    name = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    admin = AdminClient({"bootstrap.servers": address})
    brokers = sorted(admin.list_topics(timeout=TIMEOUT_S).brokers)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "plan.json"
        for wanted in brokers:
            row = {"topic": topic, "partition": 0, "replicas": [wanted]}
            file.write_text(json.dumps({"version": 1, "partitions": [row]}))
            plan = ("--reassignment-json-file", str(file))
            text = tool(name, address, *plan, "--execute", "--additional")
            check("Successfully started partition reassignment" in text, text)
            _wait_for_leader(admin, topic, wanted)
            text = tool(name, address, "--list")
            check(f"{topic}-0" not in text, text)
            text = tool(name, address, *plan, "--cancel")
            check("Successfully cancelled" not in text, text)
            text = tool(name, address, *plan, "--verify")
            check(f"{topic}-0" in text and "still in progress" not in text, text)


def _wait_for_leader(admin: AdminClient, topic: str, wanted: int) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions[0].leader != wanted:
        check(time.monotonic() < end_s, f"broker {wanted} does not lead {topic}")
        time.sleep(0.1)


def log_directories(address: str) -> None:
    """LogDirsCommand shows where replicas are and how large."""
    topic = new_topic(address)
    produce(address, topic, values_of())
    text = tool(f"{TOOLS}.LogDirsCommand", address, "--describe", "--topic-list", topic)
    found = events(text)
    check(found and f"{topic}-0" in json.dumps(found[-1]), text)


def versions(address: str) -> None:
    """BrokerApiVersionsCommand can use every version it asks about."""
    text = tool(f"{TOOLS}.BrokerApiVersionsCommand", address)
    check("Produce(0)" in text, text[:500])
    produced = next(line for line in text.splitlines() if "Produce(0)" in line)
    check("UNSUPPORTED" not in produced, produced)


def verifiable(address: str) -> None:
    """VerifiableProducer and VerifiableConsumer, by both group protocols."""
    topic = new_topic(address, 3)
    name = f"{TOOLS}.VerifiableProducer"
    text = tool(name, address, "--topic", topic, "--max-messages", str(MESSAGES), "--acks", "-1")
    sent = [event for event in events(text) if event["name"] == "producer_send_success"]
    check(len(sent) == MESSAGES, "sent", len(sent))
    _consume(address, topic, fresh("group"), MESSAGES)
    _consume(address, topic, fresh("group"), MESSAGES, "--group-protocol", "consumer")


def console(address: str) -> None:
    """ConsoleProducer takes lines, ConsoleConsumer prints them with their keys."""
    topic = new_topic(address)
    lines = [f"key {number}:value {number}" for number in range(RECORDS)]
    run_java(
        f"{TOOLS}.ConsoleProducer",
        *("--bootstrap-server", address, "--topic", topic),
        *("--property", "parse.key=true", "--property", "key.separator=:"),
        given="\n".join(lines),
    )
    text = tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        address,
        *("--topic", topic, "--from-beginning", "--max-messages", str(RECORDS)),
        *("--property", "print.key=true", "--property", "key.separator=:"),
    )
    check([line for line in text.splitlines() if line in lines] == lines, text[-500:])


def performance(address: str) -> None:
    """ProducerPerformance, ConsumerPerformance and EndToEndLatency measure."""
    topic = new_topic(address, 2)
    sizes = ("--num-records", str(MESSAGES), "--record-size", "500", "--throughput", "-1")
    text = run_java(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, *sizes, "--producer-props", f"bootstrap.servers={address}"),
    )
    check(f"{MESSAGES} records sent" in text, text)
    read = ("--topic", topic, "--messages", str(MESSAGES))
    text = tool(f"{TOOLS}.ConsumerPerformance", address, *read)
    check(text.splitlines()[-1].split(", ")[4] == str(MESSAGES), text)
    text = run_java(f"{TOOLS}.EndToEndLatency", address, topic, str(MESSAGES), "all", "100")
    check("Avg latency" in text, text)


def overviews(address: str) -> None:
    """ClusterTool shows the cluster's id, GroupsCommand lists groups of every kind."""
    topic, group = new_topic(address), fresh("group")
    text = run_java(f"{TOOLS}.ClusterTool", "cluster-id", "--bootstrap-server", address)
    check("Cluster ID: " in text, text)
    produce(address, topic, values_of())
    _consume(address, topic, group, RECORDS, "--group-protocol", "consumer")
    text = tool(f"{TOOLS}.GroupsCommand", address, "--list")
    kinds = {line.split()[0]: line.split()[1] for line in text.splitlines() if line.strip()}
    check(kinds[group] == "Consumer", text)


def copying(address: str) -> None:
    """TransactionalMessageCopier copies exactly once, though it aborts some transactions."""
    source, sink = new_topic(address), new_topic(address)
    produce(address, source, values_of(MESSAGES))
    run_java(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", address, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", sink, "--max-messages", str(MESSAGES), "--transaction-size", "30"),
        *("--consumer-group", fresh("group"), "--transactional-id", fresh("transactional")),
        "--enable-random-aborts",
        "--group-mode",
    )
    found = read_values(address, sink, MESSAGES, isolation_level="read_committed")
    check(found == values_of(MESSAGES), "copied", len(found))


def transactions(address: str) -> None:
    """TransactionsCommand lists and describes transactions and producers."""
    source, sink = new_topic(address), new_topic(address)
    identity = fresh("transactional")
    produce(address, source, values_of())
    run_java(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", address, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", sink, "--max-messages", str(RECORDS), "--transaction-size", "30"),
        *("--consumer-group", fresh("group"), "--transactional-id", identity),
    )
    name = f"{TOOLS}.TransactionsCommand"
    text = tool(name, address, "list")
    check(identity in text, text)
    text = tool(name, address, "describe", "--transactional-id", identity)
    check("CompleteCommit" in text, text)
    where = ("--topic", sink, "--partition", "0")
    text = tool(name, address, "describe-producers", *where)
    check(len(text.splitlines()) > 1, text)
    tool(name, address, "find-hanging", *where)


SCENARIOS: Final = tuple(
    Scenario("Kafka's tools", name, run)
    for name, run in (
        ("topics", topics),
        ("groups", groups),
        ("configs", configs),
        ("offsets, delete records", offsets),
        ("leader election", elections),
        ("reassignments", reassignments),
        ("log directories", log_directories),
        ("API versions", versions),
        ("verifiable clients", verifiable),
        ("console clients", console),
        ("performance", performance),
        ("cluster and groups", overviews),
        ("transactional copier", copying),
        ("transactions", transactions),
    )
)
