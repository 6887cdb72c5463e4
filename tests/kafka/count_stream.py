"""Scenario of Kafka Streams with a user's own program, for any endpoint.

Leaves Kafka's own system tests of Streams, which take no security settings, to `streams_tests`.
"""

import tempfile
from pathlib import Path
from typing import Final

from tests.kafka.confluent_calls import consumer, new_topic, produce, read
from tests.kafka.endpoint import Endpoint, properties_text
from tests.kafka.java_process import JavaProgram, jars
from tests.kafka.scenario import RECORDS, Scenario, check, fresh
from tests.kafka.streams_tests import PART, PROGRESS_TIMEOUT_S

PROGRAM: Final = "CountStream"
WORDS: Final = (b"one", b"two", b"three")


def counted(endpoint: Endpoint) -> None:
    """Count words through a repartition topic and a store, exactly once, over a restart."""
    jars(PART)
    source, sink = new_topic(endpoint, 2), new_topic(endpoint)
    values = [WORDS[number % len(WORDS)] for number in range(RECORDS)]
    with tempfile.TemporaryDirectory() as name:
        file = _file(endpoint, Path(name))
        for run in (1, 2):
            for partition in (0, 1):
                produce(endpoint, source, values, partition=partition)
            output = Path(name) / f"run-{run}.log"
            with JavaProgram(output, PROGRAM, str(file), source, sink, part=PART) as program:
                program.wait_until(lambda text: "RUNNING" in text, PROGRESS_TIMEOUT_S)
                _await_counts(endpoint, sink, 2 * run * RECORDS // len(WORDS))
                program.stop()


def _await_counts(endpoint: Endpoint, sink: str, wanted: int) -> None:
    counts: dict[bytes | None, int] = {}
    with consumer(endpoint, isolation_level="read_committed") as reader:
        reader.subscribe([sink])
        while set(counts.values()) != {wanted} or len(counts) < len(WORDS):
            (message,) = read(reader, 1)
            value = message.value()
            assert value is not None
            counts[message.key()] = int(value)
            check(counts[message.key()] <= wanted, "counted more than once", counts)


def _file(endpoint: Endpoint, directory: Path) -> Path:
    path = directory / "streams.properties"
    settings = {
        "bootstrap.servers": endpoint.addresses,
        **endpoint.java,
        "application.id": fresh("count"),
        "processing.guarantee": "exactly_once_v2",
        "state.dir": directory / "state",
        "commit.interval.ms": 200,
        "session.timeout.ms": 10_000,
        "auto.offset.reset": "earliest",
    }
    path.write_text(properties_text(settings))
    return path


SCENARIOS: Final = (Scenario("Kafka Streams", "a program that counts", counted, is_long=True),)
