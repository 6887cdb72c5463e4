"""Calls of stock clients for the tests of faults: produce, read, and describe replicas.

Leaves the faults and the expected results to the tests. Every call blocks: tests call them on
threads.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from confluent_kafka import KafkaError, Message, Producer
from confluent_kafka.admin import AdminClient, NewTopic, PartitionMetadata

from quire.local_cluster import LocalCluster
from tests.kafka.confluent_calls import read_values
from tests.kafka.endpoint import Endpoint
from tests.until import WAIT_S

CALL_S = 30.0
ASK_EVERY_S = 0.1
Result = TypeVar("Result")


def bootstrap(cluster: LocalCluster) -> str:
    """Return the addresses of all brokers."""
    return ",".join(broker.address for broker in cluster.brokers)


def create_topic(servers: str, topic: str, partitions: int, factor: int, **configs: str) -> None:
    """Create a topic; the names of configs have _ in place of dots."""
    settings = {name.replace("_", "."): value for name, value in configs.items()}
    admin = AdminClient({"bootstrap.servers": servers})
    admin.create_topics([NewTopic(topic, partitions, factor, config=settings)])[topic].result(
        CALL_S
    )


def produce(servers: str, topic: str, values: Sequence[bytes], partition: int = 0) -> None:
    """Produce with acks=all until each value is acknowledged, or raise AssertionError."""
    failures = try_to_produce(servers, topic, values, partition)
    assert not failures, failures[:3]


def try_to_produce(
    servers: str, topic: str, values: Sequence[bytes], partition: int = 0, *, once: bool = False
) -> list[KafkaError]:
    """Produce with acks=all; return the errors. `once`: without retries."""
    failures: list[KafkaError] = []

    def on_delivery(error: KafkaError | None, _message: Message) -> None:
        if error is not None:
            failures.append(error)

    again: dict[str, str | int | bool] = (
        {"message.send.max.retries": 0} if once else {"enable.idempotence": True}
    )
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "log_level": 0} | again)
    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
    left = producer.flush(WAIT_S)
    assert left == 0, f"{left} were neither acknowledged nor refused"
    return failures


def read(servers: str, topic: str, count: int) -> list[bytes]:
    """Return the first values of partition 0. Raises AssertionError if they do not come."""
    found = read_values(Endpoint(servers), topic, count)
    return [value or b"" for value in found]


def partition_of(servers: str, topic: str, partition: int = 0) -> PartitionMetadata:
    """Return the brokers' current description of a partition."""
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    return admin.list_topics(topic, CALL_S).topics[topic].partitions[partition]


def wait_for_in_sync(servers: str, topic: str, count: int) -> list[int]:
    """Wait until this many replicas of partition 0 are in sync; return their numbers."""
    return wait_until(lambda: partition_of(servers, topic).isrs, lambda isrs: len(isrs) == count)


def wait_until(ask: Callable[[], Result], is_right: Callable[[Result], bool]) -> Result:
    """Call until the result is as expected; return it. Raises AssertionError after a timeout."""
    deadline = time.monotonic() + WAIT_S
    while True:
        answer = ask()
        if is_right(answer):
            return answer
        assert time.monotonic() < deadline, answer
        time.sleep(ASK_EVERY_S)


async def on_thread(call: Callable[..., Result], *arguments: object) -> Result:
    """Run a blocking call on a thread, while the loop serves the cluster's processes."""
    return await asyncio.to_thread(call, *arguments)
