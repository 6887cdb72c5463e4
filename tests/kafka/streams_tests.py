"""Kafka Streams' own system tests, with brokers that are killed during them.

Leaves judging to Kafka's EosTestDriver and SmokeTestDriver, and the brokers to `killed_brokers`:
the endpoint that scenarios receive is not used.

Source: the topics of the tests, and their start, are those of Kafka's system tests.
"""

import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.endpoint import Endpoint, properties_text
from tests.kafka.java_process import JavaProgram, jars, run_java
from tests.kafka.killed_brokers import BROKERS, KilledBrokers
from tests.kafka.scenario import TIMEOUT_S, Scenario, check

PART: Final = "streams"
EXACTLY_ONCE: Final = "org.apache.kafka.streams.tests.StreamsEosTest"
SMOKE: Final = "org.apache.kafka.streams.tests.StreamsSmokeTest"
EXACTLY_ONCE_TOPICS: Final = ("data", "echo", "min", "sum", "repartition", "max", "cnt")
SMOKE_TOPICS: Final = (
    *("data", "echo", "min", "min-suppressed", "min-raw", "max", "sum", "sws-raw"),
    *("sws-suppressed", "dif", "cnt", "avg", "tagg", "fk"),
)
PARTITIONS: Final = 5
APPLICATIONS: Final = 2
BETWEEN_KILLS_S: Final = 4.0
PROGRESS_TIMEOUT_S: Final = 120.0
VERIFY_TIMEOUT_S: Final = 240.0


def exactly_once(_endpoint: Endpoint) -> None:
    """Process a continuous stream of records exactly once, and verify every record."""
    with _brokers_and_directory(EXACTLY_ONCE_TOPICS) as (brokers, directory), ExitStack() as stack:
        driver = stack.enter_context(
            JavaProgram(
                directory / "driver.log", EXACTLY_ONCE, *_file(brokers, directory), "run", part=PART
            )
        )
        applications = [
            stack.enter_context(_application(EXACTLY_ONCE, brokers, directory, number))
            for number in range(APPLICATIONS)
        ]
        driver.wait_until(lambda text: "records produced" in text, PROGRESS_TIMEOUT_S)
        for application in applications:
            application.wait_until(lambda text: "RUNNING" in text, PROGRESS_TIMEOUT_S)
        for number in range(BROKERS):
            time.sleep(BETWEEN_KILLS_S)
            brokers.kill_and_restart(number)
        applications[0].kill()
        time.sleep(BETWEEN_KILLS_S)
        driver.stop()
        applications[1].stop()
        text = run_java(
            EXACTLY_ONCE,
            *_file(brokers, directory),
            "verify",
            part=PART,
            timeout_s=VERIFY_TIMEOUT_S,
        )
        check("ALL-RECORDS-DELIVERED" in text, text[-1500:])


def smoke(_endpoint: Endpoint) -> None:
    """Aggregate, join and suppress, and verify every result."""
    with _brokers_and_directory(SMOKE_TOPICS) as (brokers, directory), ExitStack() as stack:
        for number in range(APPLICATIONS):
            stack.enter_context(_application(SMOKE, brokers, directory, number))
        driver = stack.enter_context(
            JavaProgram(
                directory / "driver.log", SMOKE, *_file(brokers, directory), "run", part=PART
            )
        )
        driver.wait_until(lambda text: "records produced" in text, PROGRESS_TIMEOUT_S)
        for number in range(BROKERS):
            time.sleep(BETWEEN_KILLS_S)
            brokers.kill_and_restart(number)
        driver.wait_end(VERIFY_TIMEOUT_S)
        check("SUCCESS" in driver.output, driver.tail)


@contextmanager
def _brokers_and_directory(topics: tuple[str, ...]) -> Iterator[tuple[KilledBrokers, Path]]:
    jars(PART)  # before the unnecessary start of a cluster
    with KilledBrokers() as brokers, tempfile.TemporaryDirectory() as directory:
        admin = AdminClient(brokers.endpoint.librdkafka)
        # The last records of the smoke test have times two days in the future.
        configs = {"message.timestamp.after.max.ms": str(2**63 - 1)}
        wanted = [NewTopic(name, PARTITIONS, -1, config=configs) for name in topics]
        for made in admin.create_topics(wanted).values():
            made.result(TIMEOUT_S)
        yield brokers, Path(directory)


def _application(main: str, brokers: KilledBrokers, directory: Path, number: int) -> JavaProgram:
    state = directory / f"application-{number}"
    state.mkdir()
    return JavaProgram(state / "output.log", main, *_file(brokers, state), "process", part=PART)


def _file(brokers: KilledBrokers, directory: Path) -> tuple[str]:
    """Write the settings of one program; return its arguments."""
    path = directory / "streams.properties"
    settings = {
        "bootstrap.servers": brokers.endpoint.addresses,
        **brokers.endpoint.java,
        "processing.guarantee": "exactly_once_v2",
        "state.dir": directory / "state",
        "replication.factor": 3,
        "num.standby.replicas": 1,
        "session.timeout.ms": 10_000,
    }
    path.write_text(properties_text(settings))
    return (str(path),)


SCENARIOS: Final = (
    Scenario("Kafka Streams", "exactly once, brokers killed", exactly_once, is_long=True),
    Scenario("Kafka Streams", "smoke test, brokers killed", smoke, is_long=True),
)
