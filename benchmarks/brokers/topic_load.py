"""Load process for a broker of Kafka's protocol, with librdkafka.

Prints one JSON object. Leaves starting brokers, and comparing, to `benchmarks.brokers.topics`.
"""

import argparse
import json
import os
import struct
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.measures import latency_figures

RECORD_BYTES: Final = 1024
LINGER_MS: Final = 5
BATCH_BYTES: Final = 1_000_000
WAIT_S: Final = 120.0
STAMP: Final = struct.Struct(">d")
WARM_UP_S: Final = 2.0
TICK_S: Final = 0.002

Figures = dict[str, Any]
Client = Mapping[str, Any]
"""Settings of librdkafka with which each client connects."""


class Delivered:
    """Counter of delivery reports; with `sent_s`, also of their latencies."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.seconds: list[float] = []

    def note(self, sent_s: float | None = None) -> Callable[[KafkaError | None, Message], None]:
        """Return the callback of one record."""

        def count(error: KafkaError | None, _: Message) -> None:
            if error is not None:
                self.errors.append(str(error))
            elif sent_s is not None:
                self.seconds.append(time.perf_counter() - sent_s)

        return count


def create(client: Client, topic: str, partitions: int, settings: dict[str, str]) -> None:
    """Create a topic of three replicas, and wait until its partitions have leaders."""
    admin = AdminClient({**client})
    new = NewTopic(topic, partitions, 3, config=settings)
    for made in admin.create_topics([new], operation_timeout=WAIT_S).values():
        made.result(WAIT_S)
    ends = time.monotonic() + WAIT_S
    while time.monotonic() < ends:
        known = admin.list_topics(topic, timeout=WAIT_S).topics[topic].partitions.values()
        if len(known) == partitions and all(metadata.leader >= 0 for metadata in known):
            return
        time.sleep(0.1)
    raise TimeoutError(f"{topic} has no leaders")


def produce(client: Client, topic: str, count: int) -> Figures:
    """Produce `count` records as fast as possible: acks=all, idempotent."""
    producer = Producer(
        {
            **client,
            "enable.idempotence": True,
            "linger.ms": LINGER_MS,
            "batch.size": BATCH_BYTES,
            "queue.buffering.max.kbytes": 256 * 1024,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = os.urandom(RECORD_BYTES)
    delivered = Delivered()
    on_delivery = delivered.note()
    began = time.perf_counter()
    for number in range(count):
        while True:
            try:
                producer.produce(topic, value, on_delivery=on_delivery)
                break
            except BufferError:
                producer.poll(0.01)
        if number % 1_000 == 0:
            producer.poll(0)
    left = producer.flush(WAIT_S)
    seconds = time.perf_counter() - began
    rate = count / seconds
    return {
        "records_per_s": rate,
        "mb_per_s": rate * RECORD_BYTES / 1e6,
        "errors": len(delivered.errors) + left,
    }


def consume(client: Client, topic: str, count: int) -> Figures:
    """Read a partition from its start."""
    consumer = _consumer(client)
    consumer.assign([TopicPartition(topic, 0, 0)])
    seen, began = 0, time.perf_counter()
    while seen < count and time.perf_counter() - began < WAIT_S:
        seen += len(consumer.consume(5_000, 1.0))
    seconds = time.perf_counter() - began
    consumer.close()
    return {"records_per_s": seen / seconds, "mb_per_s": seen * RECORD_BYTES / seconds / 1e6}


def end_to_end(client: Client, topic: str, rate: int, seconds: float) -> Figures:
    """Produce on a fixed schedule; measure the time from a record's due time until it is read."""
    producer = Producer({**client, "acks": "all", "linger.ms": 0})
    consumer = _consumer(client)
    consumer.assign([TopicPartition(topic, 0, 0)])
    padding = os.urandom(RECORD_BYTES - STAMP.size)
    latencies: list[float] = []
    total = int(rate * (seconds + WARM_UP_S))
    began = time.perf_counter()
    sent = seen = 0
    while seen < total and time.perf_counter() - began < seconds + WARM_UP_S + WAIT_S:
        while sent < total and time.perf_counter() - began >= sent / rate:
            producer.produce(topic, STAMP.pack(began + sent / rate) + padding)
            sent += 1
        producer.poll(0)
        for message in consumer.consume(500, 0.0005):
            value = message.value()
            if message.error() is None and value is not None:
                seen += 1
                due_s = STAMP.unpack_from(value)[0]
                if due_s - began >= WARM_UP_S:
                    latencies.append(time.perf_counter() - due_s)
    consumer.close()
    producer.flush(WAIT_S)
    return {**latency_figures(latencies), "read": seen, "sent": sent}


def spread_out(client: Client, topic: str, partitions: int, rate: int, seconds: float) -> Figures:
    """Produce small records on a fixed schedule, each to the next partition: each is a batch, and
    librdkafka sends a request for each. Its linger time is the default, 5 ms.

    A batch to each partition is sent first, so that all connections are open and every ledger has
    begun. Due records are produced every TICK_S, and their latency counts from when the first of
    them was due. Between two ticks this process does nothing, because the servers share its
    processors.
    """
    producer = Producer(
        {
            **client,
            "acks": "all",
            "linger.ms": LINGER_MS,
            "batch.num.messages": 1,
            "queue.buffering.max.messages": 1_000_000,
        }
    )
    value = os.urandom(100)
    delivered = Delivered()
    for partition in range(partitions):
        producer.produce(topic, value, partition=partition)
    producer.flush(WAIT_S)
    total = int(rate * (seconds + WARM_UP_S))
    began = time.perf_counter()
    sent = 0
    while sent < total:
        now_s = time.perf_counter() - began
        due, first_due_s = min(total, int(now_s * rate) + 1), sent / rate
        on_delivery = delivered.note(began + first_due_s if first_due_s >= WARM_UP_S else None)
        for number in range(sent, due):
            producer.produce(topic, value, partition=number % partitions, on_delivery=on_delivery)
        sent = due
        producer.poll(0)
        time.sleep(max(0.0, TICK_S - (time.perf_counter() - began - now_s)))
    left = producer.flush(WAIT_S)
    took_s = time.perf_counter() - began
    figures = latency_figures(delivered.seconds)
    return {**figures, "batches_per_s": sent / took_s, "errors": len(delivered.errors) + left}


def _consumer(client: Client) -> Consumer:
    return Consumer(
        {
            **client,
            "group.id": "benchmark",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
            "queued.min.messages": 500_000,
        }
    )


def main() -> None:
    """Run the given load, and print its figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.brokers.topic_load")
    parser.add_argument("load", choices=("create", "produce", "consume", "end-to-end", "spread"))
    parser.add_argument("--address", required=True)
    parser.add_argument("--client", metavar="NAME=VALUE", action="append", default=[])
    parser.add_argument("--topic", required=True)
    parser.add_argument("--count", type=int, default=0)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--setting", action="append", default=[], metavar="NAME=VALUE")
    asked = parser.parse_args()
    client = dict(pair.split("=", 1) for pair in asked.client)
    client["bootstrap.servers"] = asked.address
    figures: Figures = {}
    match asked.load:
        case "create":
            settings = dict(pair.split("=", 1) for pair in asked.setting)
            create(client, asked.topic, asked.partitions, settings)
        case "produce":
            figures = produce(client, asked.topic, asked.count)
        case "consume":
            figures = consume(client, asked.topic, asked.count)
        case "end-to-end":
            figures = end_to_end(client, asked.topic, asked.rate, asked.seconds)
        case "spread":
            figures = spread_out(client, asked.topic, asked.partitions, asked.rate, asked.seconds)
        case _:
            raise AssertionError(asked.load)
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()
