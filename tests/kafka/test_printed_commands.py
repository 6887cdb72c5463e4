"""Test of the commands that `quire up --secure` prints: Kafka's tools, run word for word."""

import shlex
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Final

import pytest

from quire.cli.up import kafka_lines
from quire.local_cluster import LocalCluster
from tests.kafka.fetching import TEST_TIMEOUT_S, UNAVAILABLE
from tests.kafka.java_process import run_java
from tests.kafka.kafka_tools import TOOLS, TOPICS
from tests.support.quire.in_thread import InThread

pytestmark = pytest.mark.timeout(TEST_TIMEOUT_S)

CLASSES: Final = {
    "kafka-topics.sh": TOPICS,
    "kafka-console-producer.sh": f"{TOOLS}.ConsoleProducer",
    "kafka-console-consumer.sh": f"{TOOLS}.consumer.ConsoleConsumer",
}
"""What Kafka's scripts run."""


@asynccontextmanager
async def printed() -> AsyncIterator[list[str]]:
    async with LocalCluster(broker=1, secure=True) as cluster:
        yield kafka_lines(cluster)


@pytest.fixture(scope="module")
def lines() -> Iterator[list[str]]:
    with InThread(printed()) as found:
        yield found


def test_printed_commands(lines: list[str]) -> None:
    create, produce, consume = (line for line in lines if line.startswith("  "))
    try:
        assert "Created topic orders" in run(create)
    except UNAVAILABLE as error:
        pytest.skip(str(error))
    run(produce, given="one\ntwo\n")
    text = run(f"{consume} --max-messages 2")
    assert [line for line in text.splitlines() if line in ("one", "two")] == ["one", "two"]


def test_settings_of_a_certificate(lines: list[str]) -> None:
    _, _, rest = lines[-1].partition(": ")
    address, _, file = rest.split()
    try:
        run(f"kafka-topics.sh --bootstrap-server {address} --command-config {file} --list")
    except UNAVAILABLE as error:
        pytest.skip(str(error))


def run(command: str, given: str = "") -> str:
    script, *arguments = shlex.split(command)
    return run_java(CLASSES[script], *arguments, given=given)
