"""Common calls of confluent-kafka for scenarios of any client: make a topic, produce, read.

Leaves the checks to the scenarios.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kafka.endpoint import Endpoint
from tests.kafka.scenario import TIMEOUT_S, check, fresh

FIRST_MS: Final = 1_700_000_000_000
"""Time of the first record that `produce` writes."""
POLL_S: Final = 0.2


def new_topic(
    endpoint: Endpoint, partitions: int = 1, configs: dict[str, str] | None = None
) -> str:
    """Create a topic and return its name."""
    name = fresh("topic")
    admin = AdminClient(endpoint.librdkafka)
    made = admin.create_topics([NewTopic(name, partitions, -1, config=configs or {})])
    made[name].result(TIMEOUT_S)
    return name


def produce(
    endpoint: Endpoint,
    topic: str,
    values: Sequence[bytes],
    *,
    partition: int = 0,
    **settings: object,
) -> None:
    """Produce values whose timestamps are a second apart, and wait for every acknowledgement."""
    settings_by_name = {name.replace("_", "."): value for name, value in settings.items()}
    producer = Producer({**endpoint.librdkafka, "linger.ms": 5, **settings_by_name})
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    for number, value in enumerate(values):
        producer.produce(
            topic,
            value,
            key=str(number).encode(),
            partition=partition,
            timestamp=FIRST_MS + number * 1000,
            headers=[("number", str(number).encode())],
            on_delivery=on_delivery,
        )
    left = producer.flush(TIMEOUT_S)
    check(left == 0 and not failures, "not all were acknowledged", left, failures[:3])


@contextmanager
def consumer(endpoint: Endpoint, group: str = "", **settings: object) -> Iterator[Consumer]:
    """Make a consumer that begins at the start, and close it."""
    made = Consumer(
        {
            **endpoint.librdkafka,
            "group.id": group or fresh("group"),
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "check.crcs": True,
            **{name.replace("_", "."): value for name, value in settings.items()},
        }
    )
    try:
        yield made
    finally:
        made.close()


def read(source: Consumer, count: int) -> list[Message]:
    """Return the next messages. Raises AssertionError if they do not come in time."""
    found: list[Message] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        check(time.monotonic() < deadline, f"{len(found)} of {count} records came")
        message = source.poll(POLL_S)
        if message is None:
            continue
        error = message.error()
        if error is not None:
            check(error.retriable(), error)
            continue
        found.append(message)
    return found


def read_values(
    endpoint: Endpoint, topic: str, count: int, **settings: object
) -> list[bytes | None]:
    """Return the first values of partition 0, read by assignment."""
    with consumer(endpoint, "", **settings) as source:
        source.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        return [message.value() for message in read(source, count)]
