"""Scenarios of Kafka Connect's distributed worker, whose state is in topics, and of MirrorMaker 2.

Leaves starting Java to `java_process`; workers are configured by HTTP, as usual.
"""

import json
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from metadata.store.embedded_ports import HOST, free_port
from tests.kafka.brokers import broker_in_thread
from tests.kafka.confluent_calls import consumer, new_topic, produce, read
from tests.kafka.endpoint import Endpoint, properties_text
from tests.kafka.java_process import JavaProgram, jars
from tests.kafka.scenario import RECORDS, Scenario, check, fresh, values_of

PART: Final = "connect"
WORKER: Final = "org.apache.kafka.connect.cli.ConnectDistributed"
MIRROR: Final = "org.apache.kafka.connect.mirror.MirrorMaker"
SOURCE: Final = "org.apache.kafka.connect.file.FileStreamSourceConnector"
SINK: Final = "org.apache.kafka.connect.file.FileStreamSinkConnector"
AS_STRING: Final = "org.apache.kafka.connect.storage.StringConverter"
START_TIMEOUT_S: Final = 120.0
COPY_TIMEOUT_S: Final = 90.0
ANSWER_TIMEOUT_S: Final = 30.0
POLL_S: Final = 0.3
MIRRORED: Final = 30
"""Number of records in each direction."""


def restarted_worker(endpoint: Endpoint) -> None:
    """Copy a file into a topic and out of it; a restarted worker continues where it was."""
    jars(PART)
    group, topic = fresh("connect"), new_topic(endpoint)
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        given, copied = directory / "given.txt", directory / "copied.txt"
        lines = [value.decode() for value in values_of(3 * RECORDS)]
        _add_lines(given, lines[:RECORDS])
        with _worker(endpoint, group, directory) as (program, url):
            source = {"connector.class": SOURCE, "file": str(given), "topic": topic}
            sink = {"connector.class": SINK, "file": str(copied), "topics": topic}
            _ask(f"{url}/connectors/source/config", {**source, "tasks.max": "1"})
            _ask(f"{url}/connectors/sink/config", {**sink, "tasks.max": "1"})
            _wait_copied(copied, lines[:RECORDS], program)
            program.stop()
        _add_lines(given, lines[RECORDS : 2 * RECORDS])
        with _worker(endpoint, group, directory) as (program, url):
            _wait_copied(copied, lines[: 2 * RECORDS], program)
            check(sorted(_connectors(url) or ()) == ["sink", "source"], "connectors")
            _await_running(url, program)
            program.kill()  # uncommitted records come again: at least once
        _add_lines(given, lines[2 * RECORDS :])
        with _worker(endpoint, group, directory) as (program, url):
            _wait_until(lambda: set(copied.read_text().splitlines()) == set(lines), program)
            program.stop()


def mirrored(endpoint: Endpoint) -> None:
    """Mirror a topic from a real Kafka, and one back to it, with MirrorMaker 2."""
    jars(PART)
    jars()  # before the start of a node, which has a shorter limit
    with broker_in_thread("kafka") as kafka, tempfile.TemporaryDirectory() as name:
        there, here = new_topic(kafka, 2), new_topic(endpoint, 2)
        for partition in (0, 1):
            produce(kafka, there, values_of(MIRRORED), partition=partition)
            produce(endpoint, here, values_of(MIRRORED), partition=partition)
        settings = {
            "clusters": "there, here",
            "there.bootstrap.servers": kafka.addresses,
            "here.bootstrap.servers": endpoint.addresses,
            **{f"here.{name}": value for name, value in endpoint.java.items()},
            "there->here.enabled": "true",
            "here->there.enabled": "true",
            "there->here.topics": there,
            "here->there.topics": here,
            "refresh.topics.interval.seconds": 5,  # a look that fails is repeated after 10 min
            "replication.factor": -1,
            "checkpoints.topic.replication.factor": -1,
            "heartbeats.topic.replication.factor": -1,
            "offset-syncs.topic.replication.factor": -1,
            "offset.storage.replication.factor": -1,
            "status.storage.replication.factor": -1,
            "config.storage.replication.factor": -1,
            "dedicated.mode.enable.internal.rest": "false",
        }
        file = _properties(Path(name) / "mirror.properties", settings)
        output = Path(name) / "mirror.log"
        with JavaProgram(output, MIRROR, str(file), part=PART) as program:
            _await_mirrored(endpoint, f"there.{there}", program)
            _await_mirrored(kafka, f"here.{here}", program)
            program.stop()


def _await_mirrored(endpoint: Endpoint, topic: str, program: JavaProgram) -> None:
    with consumer(endpoint) as reader:
        places = [TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in (0, 1)]
        _wait_until(lambda: all(_is_full(reader, place) for place in places), program)
        for place in places:
            reader.assign([place])
            found = [message.value() for message in read(reader, MIRRORED)]
            check(found == values_of(MIRRORED), topic, found[:3])


def _is_full(reader: Consumer, place: TopicPartition) -> bool:
    """Return whether the mirror has every record; it makes the topic itself."""
    try:
        return reader.get_watermark_offsets(place, ANSWER_TIMEOUT_S)[1] == MIRRORED
    except KafkaException:
        return False


@contextmanager
def _worker(endpoint: Endpoint, group: str, directory: Path) -> Iterator[tuple[JavaProgram, str]]:
    """Start a worker; yield it and its URL once it answers."""
    url = f"http://{HOST}:{free_port()}"
    settings = {
        "bootstrap.servers": endpoint.addresses,
        **_security(endpoint),
        "group.id": group,
        "listeners": url,
        "key.converter": AS_STRING,
        "value.converter": AS_STRING,
        "offset.flush.interval.ms": 1000,
        "plugin.discovery": "only_scan",
        "consumer.auto.offset.reset": "earliest",
        "session.timeout.ms": 10_000,
        "scheduled.rebalance.max.delay.ms": 0,
    }
    for what in ("config", "offset", "status"):
        settings[f"{what}.storage.topic"] = f"{group}-{what}"
        settings[f"{what}.storage.replication.factor"] = -1
    settings["offset.storage.partitions"] = settings["status.storage.partitions"] = 3
    file = _properties(directory / "worker.properties", settings)
    with JavaProgram(directory / "worker.log", WORKER, str(file), part=PART) as program:
        _wait_until(lambda: _connectors(url) is not None, program, START_TIMEOUT_S)
        yield program, url


def _security(endpoint: Endpoint) -> dict[str, str]:
    """Return the settings of a worker, and of the clients that it makes for connectors."""
    prefixes = ("", "producer.", "consumer.", "admin.")
    return {f"{prefix}{key}": value for prefix in prefixes for key, value in endpoint.java.items()}


def _connectors(url: str) -> list[str] | None:
    """Return the connectors' names; None while the worker does not answer."""
    try:
        found = _ask(f"{url}/connectors")
    except OSError:
        return None
    assert isinstance(found, list)
    return found


def _await_running(url: str, program: JavaProgram) -> None:
    def all_run() -> bool:
        found = [json.dumps(_ask(f"{url}/connectors/{name}/status")) for name in ("source", "sink")]
        return all(text.count('"RUNNING"') == 2 for text in found)  # connector and task

    _wait_until(all_run, program)


def _ask(url: str, config: Mapping[str, str] | None = None) -> object:
    """GET, or PUT a configuration; return the answer. Raises OSError."""
    request = urllib.request.Request(
        url,
        None if config is None else json.dumps(config).encode(),
        {"Content-Type": "application/json"},
        method="GET" if config is None else "PUT",
    )
    with urllib.request.urlopen(request, timeout=ANSWER_TIMEOUT_S) as answer:
        return json.load(answer)


def _wait_copied(copied: Path, lines: list[str], program: JavaProgram) -> None:
    _wait_until(lambda: copied.exists() and copied.read_text().splitlines() == lines, program)


def _wait_until(
    condition: Callable[[], object], program: JavaProgram, timeout_s: float = COPY_TIMEOUT_S
) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        check(time.monotonic() < deadline, "did not come about", program.tail)
        time.sleep(POLL_S)


def _add_lines(path: Path, lines: list[str]) -> None:
    with path.open("a") as file:
        file.writelines(f"{line}\n" for line in lines)


def _properties(path: Path, settings: Mapping[str, object]) -> Path:
    path.write_text(properties_text(settings))
    return path


SCENARIOS: Final = (
    Scenario("Kafka Connect", "worker restarted and killed", restarted_worker, is_long=True),
    Scenario("MirrorMaker 2", "from Kafka and back", mirrored, is_long=True),
)
