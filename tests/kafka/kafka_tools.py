"""Scenarios of Kafka's own tools: administration commands, and the verifiable clients.

Leaves starting Java to `java_process`, and security settings to `endpoint`. Only the essential
output of the tools is checked.
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient

from tests.kafka.confluent_calls import new_topic, produce, read_values
from tests.kafka.endpoint import Endpoint, properties_file
from tests.kafka.java_process import events, run_java
from tests.kafka.scenario import (
    RECORDS,
    TIMEOUT_S,
    Scenario,
    UnavailableError,
    check,
    fresh,
    values_of,
)

TOOLS: Final = "org.apache.kafka.tools"
TOPICS: Final = f"{TOOLS}.TopicCommand"
GROUPS: Final = f"{TOOLS}.consumer.group.ConsumerGroupCommand"
CONFIGS: Final = "kafka.admin.ConfigCommand"
MESSAGES: Final = 200


SETTINGS_OPTIONS: Final = {
    f"{TOOLS}.LeaderElectionCommand": "--admin.config",
    f"{TOOLS}.VerifiableProducer": "--producer.config",
    f"{TOOLS}.VerifiableConsumer": "--consumer.config",
    f"{TOOLS}.ConsoleProducer": "--producer.config",
    f"{TOOLS}.consumer.ConsoleConsumer": "--consumer.config",
    f"{TOOLS}.ProducerPerformance": "--producer.config",
    f"{TOOLS}.ConsumerPerformance": "--consumer.config",
    f"{TOOLS}.ClusterTool": "--config",
}
"""Option of a tool that names a file with settings, if it is not --command-config."""


def tool(name: str, endpoint: Endpoint, *arguments: str, given: str = "") -> str:
    """Run a tool that takes --bootstrap-server."""
    return secured(
        name, endpoint, "--bootstrap-server", endpoint.addresses, *arguments, given=given
    )


def secured(name: str, endpoint: Endpoint, *arguments: str, given: str = "") -> str:
    """Run a tool with the security settings of the endpoint, if it has any."""
    if endpoint.identity is None:
        return run_java(name, *arguments, given=given)
    option = SETTINGS_OPTIONS.get(name, "--command-config")
    with properties_file(endpoint.java) as path:
        return run_java(name, *arguments, option, path, given=given)


def topics(endpoint: Endpoint) -> None:
    """TopicCommand creates, describes, grows and deletes; nothing is below its minimum."""
    topic = fresh("topic")
    tool(TOPICS, endpoint, "--create", "--topic", topic, "--partitions", "2")
    text = tool(TOPICS, endpoint, "--describe", "--topic", topic)
    check("PartitionCount: 2" in text and text.count("Leader: ") == 2, text)
    tool(TOPICS, endpoint, "--alter", "--topic", topic, "--partitions", "3")
    check("PartitionCount: 3" in tool(TOPICS, endpoint, "--describe", "--topic", topic), "grown")
    for state in ("under-min-isr", "under-replicated", "unavailable", "at-min-isr"):
        text = tool(TOPICS, endpoint, "--describe", "--topic", topic, f"--{state}-partitions")
        check(state == "at-min-isr" or topic not in text, state, text)
    check(topic in tool(TOPICS, endpoint, "--list").split(), "not listed")
    tool(TOPICS, endpoint, "--delete", "--topic", topic)


def groups(endpoint: Endpoint) -> None:
    """ConsumerGroupCommand describes, resets and deletes."""
    topic, group = new_topic(endpoint), fresh("group")
    produce(endpoint, topic, values_of())
    _consume(endpoint, topic, group, RECORDS)
    text = tool(GROUPS, endpoint, "--describe", "--group", group)
    row = next(line.split() for line in text.splitlines() if line.startswith(group))
    check(row[1:6] == [topic, "0", str(RECORDS), str(RECORDS), "0"], text)
    check("Empty" in tool(GROUPS, endpoint, "--describe", "--group", group, "--state"), "state")
    reset = ("--reset-offsets", "--group", group, "--topic", topic, "--execute")
    text = tool(GROUPS, endpoint, *reset, "--to-offset", "7")
    check(text.split()[-1] == "7", text)
    text = tool(GROUPS, endpoint, *reset, "--to-datetime", "2023-11-14T22:13:30.500+00:00")
    check(text.split()[-1] == "11", text)
    check(group in tool(GROUPS, endpoint, "--list").split(), "not listed")
    tool(GROUPS, endpoint, "--delete", "--group", group)
    check(group not in tool(GROUPS, endpoint, "--list").split(), "still listed")


def _consume(endpoint: Endpoint, topic: str, group: str, count: int, *options: str) -> None:
    name = f"{TOOLS}.VerifiableConsumer"
    common = ("--topic", topic, "--group-id", group, "--max-messages", str(count))
    text = tool(name, endpoint, *common, "--reset-policy", "earliest", *options)
    found = [event for event in events(text) if event["name"] == "records_consumed"]
    check(sum(int(str(event["count"])) for event in found) == count, "consumed", text[-500:])


def configs(endpoint: Endpoint) -> None:
    """ConfigCommand sets, shows and removes a topic's setting."""
    topic = new_topic(endpoint)
    entity = ("--entity-type", "topics", "--entity-name", topic)
    tool(CONFIGS, endpoint, "--alter", *entity, "--add-config", "retention.ms=3600000")
    text = tool(CONFIGS, endpoint, "--describe", *entity)
    check("retention.ms=3600000" in text, text)
    tool(CONFIGS, endpoint, "--alter", *entity, "--delete-config", "retention.ms")
    check("retention.ms" not in tool(CONFIGS, endpoint, "--describe", *entity), "still set")
    text = tool(CONFIGS, endpoint, "--describe", *entity, "--all")
    check("cleanup.policy=delete" in text, text)


def users(endpoint: Endpoint) -> None:
    """ConfigCommand gives a user passwords, shows its mechanisms and removes it."""
    name, password = fresh("user"), fresh("password")
    entity = ("--entity-type", "users", "--entity-name", name)
    for mechanism in ("SCRAM-SHA-512", "SCRAM-SHA-256"):
        change = f"{mechanism}=[iterations=8192,password={password}]"
        text = tool(CONFIGS, endpoint, "--alter", *entity, "--add-config", change)
        check("Completed updating config" in text and password not in text, text)
        text = tool(CONFIGS, endpoint, "--describe", *entity)
        check(f"{mechanism}=iterations=8192" in text, text)
    text = tool(CONFIGS, endpoint, "--describe", "--entity-type", "users")
    check(name in text, text)
    removed = ("--delete-config", "SCRAM-SHA-512,SCRAM-SHA-256")
    tool(CONFIGS, endpoint, "--alter", *entity, *removed)
    text = tool(CONFIGS, endpoint, "--describe", *entity)
    check("SCRAM" not in text, text)


def offsets(endpoint: Endpoint) -> None:
    """GetOffsetShell shows ends, starts and times; DeleteRecordsCommand moves the start."""
    topic = new_topic(endpoint)
    produce(endpoint, topic, values_of())
    shell = f"{TOOLS}.GetOffsetShell"
    expected = {"-1": RECORDS, "-2": 0, "latest": RECORDS, "max-timestamp": RECORDS - 1}
    for when, offset in expected.items():
        text = tool(shell, endpoint, "--topic", topic, "--time", when)
        check(f"{topic}:0:{offset}" in text.split(), when, text)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "offsets.json"
        until = {"partitions": [{"topic": topic, "partition": 0, "offset": 25}], "version": 1}
        file.write_text(json.dumps(until))
        text = tool(f"{TOOLS}.DeleteRecordsCommand", endpoint, "--offset-json-file", str(file))
    check("low_watermark: 25" in text, text)
    text = tool(shell, endpoint, "--topic", topic, "--time", "-2")
    check(f"{topic}:0:25" in text.split(), text)


def elections(endpoint: Endpoint) -> None:
    """LeaderElectionCommand finds the preferred leader at work."""
    topic = new_topic(endpoint)
    which = ("--election-type", "preferred", "--topic", topic, "--partition", "0")
    text = tool(f"{TOOLS}.LeaderElectionCommand", endpoint, *which)
    check(topic in text and "rror" not in text, text)


def reassignments(endpoint: Endpoint) -> None:
    """ReassignPartitionsCommand moves the leader, lists, cancels and verifies."""
    topic = new_topic(endpoint)
    name = f"{TOOLS}.reassign.ReassignPartitionsCommand"
    admin = AdminClient(endpoint.librdkafka)
    brokers = sorted(admin.list_topics(timeout=TIMEOUT_S).brokers)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "plan.json"
        for wanted in brokers:
            row = {"topic": topic, "partition": 0, "replicas": [wanted]}
            file.write_text(json.dumps({"version": 1, "partitions": [row]}))
            plan = ("--reassignment-json-file", str(file))
            text = tool(name, endpoint, *plan, "--execute", "--additional")
            check("Successfully started partition reassignment" in text, text)
            _wait_for_leader(admin, topic, wanted)
            text = tool(name, endpoint, "--list")
            check(f"{topic}-0" not in text, text)
            text = tool(name, endpoint, *plan, "--cancel")
            check("Successfully cancelled" not in text, text)
            text = tool(name, endpoint, *plan, "--verify")
            check(f"{topic}-0" in text and "still in progress" not in text, text)


def _wait_for_leader(admin: AdminClient, topic: str, wanted: int) -> None:
    end_s = time.monotonic() + TIMEOUT_S
    while admin.list_topics(topic, timeout=TIMEOUT_S).topics[topic].partitions[0].leader != wanted:
        check(time.monotonic() < end_s, f"broker {wanted} does not lead {topic}")
        time.sleep(0.1)


def log_directories(endpoint: Endpoint) -> None:
    """LogDirsCommand shows where replicas are and how large."""
    topic = new_topic(endpoint)
    produce(endpoint, topic, values_of())
    text = tool(f"{TOOLS}.LogDirsCommand", endpoint, "--describe", "--topic-list", topic)
    found = events(text)
    check(found and f"{topic}-0" in json.dumps(found[-1]), text)


def versions(endpoint: Endpoint) -> None:
    """BrokerApiVersionsCommand can use every version it asks about."""
    text = tool(f"{TOOLS}.BrokerApiVersionsCommand", endpoint)
    check("Produce(0)" in text, text[:500])
    produced = next(line for line in text.splitlines() if "Produce(0)" in line)
    check("UNSUPPORTED" not in produced, produced)


def verifiable(endpoint: Endpoint) -> None:
    """VerifiableProducer and VerifiableConsumer, by both group protocols."""
    topic = new_topic(endpoint, 3)
    name = f"{TOOLS}.VerifiableProducer"
    text = tool(name, endpoint, "--topic", topic, "--max-messages", str(MESSAGES), "--acks", "-1")
    sent = [event for event in events(text) if event["name"] == "producer_send_success"]
    check(len(sent) == MESSAGES, "sent", len(sent))
    _consume(endpoint, topic, fresh("group"), MESSAGES)
    _consume(endpoint, topic, fresh("group"), MESSAGES, "--group-protocol", "consumer")


def console(endpoint: Endpoint) -> None:
    """ConsoleProducer takes lines, ConsoleConsumer prints them with their keys."""
    topic = new_topic(endpoint)
    lines = [f"key {number}:value {number}" for number in range(RECORDS)]
    tool(
        f"{TOOLS}.ConsoleProducer",
        endpoint,
        *("--topic", topic),
        *("--property", "parse.key=true", "--property", "key.separator=:"),
        given="\n".join(lines),
    )
    text = tool(
        f"{TOOLS}.consumer.ConsoleConsumer",
        endpoint,
        *("--topic", topic, "--from-beginning", "--max-messages", str(RECORDS)),
        *("--property", "print.key=true", "--property", "key.separator=:"),
    )
    check([line for line in text.splitlines() if line in lines] == lines, text[-500:])


def performance(endpoint: Endpoint) -> None:
    """ProducerPerformance, ConsumerPerformance and EndToEndLatency measure."""
    topic = new_topic(endpoint, 2)
    sizes = ("--num-records", str(MESSAGES), "--record-size", "500", "--throughput", "-1")
    text = secured(
        f"{TOOLS}.ProducerPerformance",
        endpoint,
        *("--topic", topic, *sizes),
        *("--producer-props", f"bootstrap.servers={endpoint.addresses}"),
    )
    check(f"{MESSAGES} records sent" in text, text)
    read = ("--topic", topic, "--messages", str(MESSAGES))
    text = tool(f"{TOOLS}.ConsumerPerformance", endpoint, *read)
    check(text.splitlines()[-1].split(", ")[4] == str(MESSAGES), text)
    with properties_file(endpoint.java) as path:
        latency = (endpoint.addresses, topic, str(MESSAGES), "all", "100", path)
        text = run_java(f"{TOOLS}.EndToEndLatency", *latency)
    check("Avg latency" in text, text)


def overviews(endpoint: Endpoint) -> None:
    """ClusterTool shows the cluster's id, GroupsCommand lists groups of every kind."""
    topic, group = new_topic(endpoint), fresh("group")
    address = ("--bootstrap-server", endpoint.addresses)
    text = secured(f"{TOOLS}.ClusterTool", endpoint, "cluster-id", *address)
    check("Cluster ID: " in text, text)
    produce(endpoint, topic, values_of())
    _consume(endpoint, topic, group, RECORDS, "--group-protocol", "consumer")
    text = tool(f"{TOOLS}.GroupsCommand", endpoint, "--list")
    kinds = {line.split()[0]: line.split()[1] for line in text.splitlines() if line.strip()}
    check(kinds[group] == "Consumer", text)


def copying(endpoint: Endpoint) -> None:
    """TransactionalMessageCopier copies exactly once, though it aborts some transactions."""
    source, sink = new_topic(endpoint), new_topic(endpoint)
    produce(endpoint, source, values_of(MESSAGES))
    more = ("--enable-random-aborts", "--group-mode")
    _copy(endpoint, source, sink, MESSAGES, fresh("transactional"), *more)
    found = read_values(endpoint, sink, MESSAGES, isolation_level="read_committed")
    check(found == values_of(MESSAGES), "copied", len(found))


def _copy(
    endpoint: Endpoint, source: str, sink: str, count: int, identity: str, *more: str
) -> None:
    if endpoint.identity is not None:
        raise UnavailableError("TransactionalMessageCopier takes no security settings")
    run_java(
        f"{TOOLS}.TransactionalMessageCopier",
        *("--broker-list", endpoint.addresses, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", sink, "--max-messages", str(count), "--transaction-size", "30"),
        *("--consumer-group", fresh("group"), "--transactional-id", identity, *more),
    )


def transactions(endpoint: Endpoint) -> None:
    """TransactionsCommand lists and describes transactions and producers."""
    source, sink = new_topic(endpoint), new_topic(endpoint)
    identity = fresh("transactional")
    produce(endpoint, source, values_of())
    _copy(endpoint, source, sink, RECORDS, identity)
    name = f"{TOOLS}.TransactionsCommand"
    text = tool(name, endpoint, "list")
    check(identity in text, text)
    text = tool(name, endpoint, "describe", "--transactional-id", identity)
    check("CompleteCommit" in text, text)
    where = ("--topic", sink, "--partition", "0")
    text = tool(name, endpoint, "describe-producers", *where)
    check(len(text.splitlines()) > 1, text)
    tool(name, endpoint, "find-hanging", *where)


SCENARIOS: Final = tuple(
    Scenario("Kafka's tools", name, run)
    for name, run in (
        ("topics", topics),
        ("groups", groups),
        ("configs", configs),
        ("users", users),
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
