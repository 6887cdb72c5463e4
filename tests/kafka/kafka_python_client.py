"""Scenarios of kafka-python: producing, consuming, groups, transactions, administration."""

import time
from collections.abc import Sequence
from contextlib import closing
from typing import Final

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from broker_layer.kafka.client_codecs import use_own_codecs
from tests.kafka.confluent_calls import FIRST_MS, new_topic
from tests.kafka.endpoint import Endpoint
from tests.kafka.scenario import RECORDS, TIMEOUT_S, Scenario, check, fresh, values_of

COMPRESSIONS: Final = (None, "gzip", "snappy", "lz4", "zstd")
use_own_codecs()  # else a compression whose package the machine lacks would not be run


def produce(endpoint: Endpoint, topic: str, values: Sequence[bytes], **settings: object) -> None:
    """Produce values to partition 0, their times a second apart."""
    producer = KafkaProducer(**endpoint.keywords, linger_ms=5, **settings)
    try:
        waiting = [
            producer.send(topic, value, partition=0, timestamp_ms=FIRST_MS + number * 1000)
            for number, value in enumerate(values)
        ]
        for each in waiting:
            each.get(TIMEOUT_S)
    finally:
        producer.close()


def read(source: KafkaConsumer, count: int) -> list[bytes]:
    """Return the next values. Raises AssertionError if they do not come in time.

    A poll may last as long as there is time: kafka-python 3.0 loses its assignment for good if a
    poll ends in the moment in which the answer to its SyncGroup arrives.
    """
    found: list[bytes] = []
    deadline = time.monotonic() + TIMEOUT_S
    while len(found) < count:
        left_s = deadline - time.monotonic()
        check(left_s > 0, f"{len(found)} of {count} records came")
        polled = source.poll(left_s * 1000, max_records=count - len(found))
        for records in polled.values():
            found.extend(record.value for record in records)
    return found


def read_first(endpoint: Endpoint, topic: str, count: int, **settings: object) -> list[bytes]:
    """Return the first values of partition 0."""
    source = KafkaConsumer(**endpoint.keywords, auto_offset_reset="earliest", **settings)
    try:
        source.assign([TopicPartition(topic, 0)])
        return read(source, count)
    finally:
        source.close()


def every_compression(endpoint: Endpoint) -> None:
    """Produce with each compression, idempotent as by default, and read all back."""
    topic = new_topic(endpoint)
    for place, compression in enumerate(COMPRESSIONS):
        values = values_of(start=place * RECORDS)
        produce(endpoint, topic, values, compression_type=compression)
    count = RECORDS * len(COMPRESSIONS)
    check(read_first(endpoint, topic, count) == values_of(count), "values differ")


def every_acks(endpoint: Endpoint) -> None:
    """Produce with acks 0, 1 and all, not idempotent."""
    for acks in (0, 1, "all"):
        topic = new_topic(endpoint)
        produce(endpoint, topic, values_of(), acks=acks, enable_idempotence=False)
        check(read_first(endpoint, topic, RECORDS) == values_of(), "values differ", acks)


def seek_by_time(endpoint: Endpoint) -> None:
    """Look up an offset by time and the ends, and seek."""
    topic = new_topic(endpoint)
    produce(endpoint, topic, values_of())
    place = TopicPartition(topic, 0)
    source = KafkaConsumer(**endpoint.keywords)
    try:
        source.assign([place])
        found = source.offsets_for_times({place: FIRST_MS + 10_500})[place]
        check(found.offset == 11, "offset of the time", found)
        source.seek(place, found.offset)
        check(read(source, 1) == values_of(1, 11), "not where the time is")
        check(source.end_offsets([place])[place] == RECORDS, "end")
    finally:
        source.close()


def group(endpoint: Endpoint) -> None:
    """Two members share four partitions; a later one resumes."""
    topic, name = new_topic(endpoint, 4), fresh("group")

    def member() -> KafkaConsumer:
        return KafkaConsumer(
            topic,
            **endpoint.keywords,
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )

    with closing(KafkaProducer(**endpoint.keywords)) as producer:
        for number, value in enumerate(values_of()):
            producer.send(topic, value, partition=number % 4)
        producer.flush(TIMEOUT_S)
        with closing(member()) as first, closing(member()) as second:
            check(sorted(read(first, RECORDS)) == values_of(), "values differ")
            first.commit()
            deadline = time.monotonic() + TIMEOUT_S
            while [len(first.assignment()), len(second.assignment())] != [2, 2]:
                check(time.monotonic() < deadline, "two members do not share")
                for consumer in (first, second):
                    consumer.poll(500)
        producer.send(topic, b"later", partition=2)
    with closing(member()) as third:
        check(read(third, 1) == [b"later"], "did not resume")


def transactions(endpoint: Endpoint) -> None:
    """Commit and abort, with the offsets of a group."""
    topic, name = new_topic(endpoint), fresh("group")
    settings = {**endpoint.keywords, "transactional_id": fresh("transactional")}
    with closing(KafkaProducer(**settings)) as producer:
        producer.init_transactions()
        for place, commits in enumerate((True, False, True)):
            producer.begin_transaction()
            for value in values_of(10, place * 10):
                producer.send(topic, value, partition=0)
            producer.flush(TIMEOUT_S)
            if commits:
                offsets = {TopicPartition(topic, 0): OffsetAndMetadata(place + 1, "", -1)}
                producer.send_offsets_to_transaction(offsets, name)
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    found = read_first(endpoint, topic, 20, isolation_level="read_committed")
    check(found == values_of(10) + values_of(10, 20), "read committed", found)
    with closing(KafkaConsumer(**endpoint.keywords, group_id=name)) as source:
        check(source.committed(TopicPartition(topic, 0)) == 3, "offset of the transaction")


def administration(endpoint: Endpoint) -> None:
    """Describe the cluster, topics and groups."""
    topic, name = new_topic(endpoint, 2), fresh("group")
    admin = KafkaAdminClient(**endpoint.keywords)
    try:
        check(topic in admin.list_topics(), "not listed")
        (described,) = admin.describe_topics([topic])
        check(len(described["partitions"]) == 2, "partitions", described)
        check(admin.describe_cluster()["brokers"], "no brokers")
        place = TopicPartition(topic, 1)
        with closing(KafkaConsumer(**endpoint.keywords, group_id=name)) as source:
            source.assign([place])
            source.commit({place: OffsetAndMetadata(5, "noted", -1)})
        found = admin.list_group_offsets([name])[name]
        check(found[place].offset == 5, "offset", found)
        admin.delete_groups([name])
        admin.delete_topics([topic])
    finally:
        admin.close()


SCENARIOS: Final = tuple(
    Scenario("kafka-python", name, scenario)
    for name, scenario in (
        ("every compression", every_compression),
        ("every acks", every_acks),
        ("seek by time", seek_by_time),
        ("group", group),
        ("transactions", transactions),
        ("administration", administration),
    )
)
