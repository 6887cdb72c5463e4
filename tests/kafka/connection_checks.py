"""Scenario that connects and lists topics, for one client of each kind.

It is for the tests of refusals: the error that it raises has the text that a person sees, in the
exception or in the client's log. Leaves the expected texts to the tests.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from typing import Any, Final

from aiokafka import AIOKafkaConsumer
from aiokafka.errors import KafkaConnectionError
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer
from kafka.errors import KafkaTimeoutError
from kafka.net.compat import KafkaNetClient

from quire.server.overriding import override
from tests.kafka import java_client, kafka_tools, node_clients
from tests.kafka.endpoint import Endpoint
from tests.kafka.scenario import Scenario, check
from tests.until import until_closed

ANSWER_TIMEOUT_S: Final = 5.0
POLL_S: Final = 0.1


def with_librdkafka(endpoint: Endpoint) -> None:
    """List topics. Raises AssertionError with the errors that the application's callback received.

    The exception of librdkafka itself is always that of a timeout.
    """
    seen: list[KafkaError] = []
    quiet: dict[str, Any] = {"error_cb": seen.append, "log_level": 0}
    admin = AdminClient({**endpoint.librdkafka, **quiet})
    try:
        admin.list_topics(timeout=ANSWER_TIMEOUT_S)
    except KafkaException as error:
        admin.poll(POLL_S)
        raise AssertionError("; ".join(str(each) for each in (error, *seen))) from None


def with_kafka_python(endpoint: Endpoint) -> None:
    """List topics. Raises AssertionError with the log of kafka-python.

    A consumer that does not connect raises from its constructor, and leaves its client open, whose
    thread goes on for as long as the process.
    """
    with ExitStack() as stack, _log_of("kafka") as lines:

        def client(**settings: object) -> KafkaNetClient:
            return stack.enter_context(closing(KafkaNetClient(**settings)))

        patience = {"bootstrap_timeout_ms": int(ANSWER_TIMEOUT_S * 1000), "kafka_client": client}
        try:
            with closing(KafkaConsumer(**endpoint.keywords, **patience)) as source:
                check(isinstance(source.topics(), set), "no topics")
        except KafkaTimeoutError as error:
            raise AssertionError("; ".join((str(error), *lines))) from None


def with_aiokafka(endpoint: Endpoint) -> None:
    """List topics. Raises AssertionError with the log of aiokafka."""

    async def connect() -> None:
        source = AIOKafkaConsumer(**endpoint.keywords)
        try:
            await source.start()
            check(isinstance(await source.topics(), set), "no topics")
        finally:
            await source.stop()
            await until_closed()

    with _log_of("aiokafka") as lines:
        try:
            asyncio.run(connect())
        except KafkaConnectionError as error:
            raise AssertionError("; ".join((str(error), *lines))) from None


def with_kafka_topics(endpoint: Endpoint) -> None:
    """List topics with Kafka's own tool."""
    kafka_tools.tool(kafka_tools.TOPICS, endpoint, "--list")


class _Lines(logging.Handler):
    """Lines of a log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


@contextmanager
def _log_of(name: str) -> Iterator[list[str]]:
    """Yield the list of a logger's warnings and errors, which grows."""
    handler, logger = _Lines(), logging.getLogger(name)
    logger.addHandler(handler)
    try:
        yield handler.lines
    finally:
        logger.removeHandler(handler)


CHECKS: Final = (
    Scenario("confluent-kafka", "connect", with_librdkafka),
    Scenario("kafka-python", "connect", with_kafka_python),
    Scenario("aiokafka", "connect", with_aiokafka),
    Scenario("kafkajs", "connect", node_clients.scenario("node", "connect")),
    Scenario("Java client", "connect", java_client.scenario("connect")),
    Scenario("Kafka's tools", "connect", with_kafka_topics),
)
