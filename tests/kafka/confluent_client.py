"""Scenarios of confluent-kafka (librdkafka): producing, consuming, groups, transactions.

Leaves running and reporting to `__main__` and the tests.
"""

import time
from collections.abc import Callable
from typing import Final

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    ConsumerGroupTopicPartitions,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)

from tests.kafka.confluent_calls import (
    FIRST_MS,
    consumer,
    new_topic,
    produce,
    read,
    read_values,
)
from tests.kafka.endpoint import Endpoint
from tests.kafka.scenario import RECORDS, TIMEOUT_S, Scenario, check, fresh, values_of

COMPRESSIONS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
CLASSIC, NEWER = "classic", "consumer"


def every_compression(endpoint: Endpoint) -> None:
    """Produce with each compression, and read all back in order."""
    topic = new_topic(endpoint)
    for place, compression in enumerate(COMPRESSIONS):
        values = values_of(start=place * RECORDS)
        produce(endpoint, topic, values, compression_type=compression)
    count = RECORDS * len(COMPRESSIONS)
    check(read_values(endpoint, topic, count) == values_of(count), "values differ")


def every_acks(endpoint: Endpoint) -> None:
    """Produce with acks 0, 1 and all."""
    for acks in ("0", "1", "all"):
        topic = new_topic(endpoint)
        produce(endpoint, topic, values_of(), acks=acks)
        check(read_values(endpoint, topic, RECORDS) == values_of(), f"values differ, acks {acks}")


def particulars(endpoint: Endpoint) -> None:
    """Keys, headers, timestamps and offsets come back unchanged."""
    topic = new_topic(endpoint)
    produce(endpoint, topic, values_of())
    with consumer(endpoint) as source:
        source.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        messages = read(source, RECORDS)
        low, high = source.get_watermark_offsets(TopicPartition(topic, 0), timeout=TIMEOUT_S)
    check((low, high) == (0, RECORDS), "watermarks", low, high)
    for number, message in enumerate(messages):
        text = str(number).encode()
        check(message.offset() == number, "offset", message.offset(), number)
        check(message.key() == text, "key", message.key())
        check(message.headers() == [("number", text)], "headers", message.headers())
        check(message.timestamp()[1] == FIRST_MS + number * 1000, "time", message.timestamp())


def seek_by_time(endpoint: Endpoint) -> None:
    """Look up offsets by time, seek there and continue to read."""
    topic = new_topic(endpoint)
    produce(endpoint, topic, values_of())
    with consumer(endpoint) as source:
        asked = [TopicPartition(topic, 0, FIRST_MS + 10_500)]
        (found,) = source.offsets_for_times(asked, timeout=TIMEOUT_S)
        check(found.offset == 11, "offset of the time", found)
        source.assign([found])
        check(read(source, 1)[0].offset() == 11, "not where the time is")
        source.seek(TopicPartition(topic, 0, 40))
        check(read(source, 1)[0].offset() == 40, "not where it was told to seek to")


def large_records(endpoint: Endpoint) -> None:
    """Send records of nearly the largest size, and a larger one that is refused."""
    topic = new_topic(endpoint)
    values = [bytes([number]) * 900_000 for number in range(5)]
    produce(endpoint, topic, values, message_max_bytes=2_000_000)
    check(read_values(endpoint, topic, 5) == values, "values differ")
    try:
        produce(endpoint, topic, [b"x" * 1_500_000], message_max_bytes=2_000_000)
    except AssertionError as error:
        check("MSG_SIZE_TOO_LARGE" in str(error), error)
    else:
        raise AssertionError("a record above max.message.bytes was taken")


def idempotent(endpoint: Endpoint) -> None:
    """Produce with an idempotent producer to several partitions."""
    topic = new_topic(endpoint, 3)
    for partition in range(3):
        produce(endpoint, topic, values_of(300), partition=partition, enable_idempotence=True)
    check(read_values(endpoint, topic, 300) == values_of(300), "values differ")


def group(protocol: str) -> Callable[[Endpoint], None]:
    """Return the scenario of a group that shares, rebalances, commits and resumes."""

    def run(endpoint: Endpoint) -> None:
        topic, name = new_topic(endpoint, 4), fresh("group")
        for partition in range(4):
            produce(endpoint, topic, values_of(), partition=partition)
        with consumer(endpoint, name, group_protocol=protocol) as first:
            first.subscribe([topic])
            messages = read(first, 4 * RECORDS)
            seen = sorted((m.partition() or 0, m.offset() or 0) for m in messages)
            everything = [(p, o) for p in range(4) for o in range(RECORDS)]
            check(seen == everything, "not everything was read once", len(seen))
            first.commit(asynchronous=False)
            with consumer(endpoint, name, group_protocol=protocol) as second:
                second.subscribe([topic])
                _wait_until_shared(first, second)
            _wait_for_assignment(first, 4)
            places = [TopicPartition(topic, partition) for partition in range(4)]
            committed = first.committed(places, timeout=TIMEOUT_S)
            check(
                [topic_partition.offset for topic_partition in committed] == [RECORDS] * 4,
                "commits",
                committed,
            )
        for partition in range(4):
            produce(endpoint, topic, [b"later"], partition=partition)
        with consumer(endpoint, name, group_protocol=protocol) as third:
            third.subscribe([topic])
            values = [message.value() for message in read(third, 4)]
            check(values == [b"later"] * 4, "did not resume where it was committed", values[:5])

    return run


def _wait_until_shared(first: Consumer, second: Consumer) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        for each in (first, second):
            message = each.poll(0.1)
            check(message is None or message.error() is not None, "a committed record came again")
        sizes = [len(first.assignment()), len(second.assignment())]
        if sizes == [2, 2]:
            return
        check(time.monotonic() < deadline, "two members do not share", sizes)


def _wait_for_assignment(source: Consumer, count: int) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while len(source.assignment()) != count:
        check(time.monotonic() < deadline, "the one left does not get all", source.assignment())
        source.poll(0.1)


def static_member(endpoint: Endpoint) -> None:
    """Return as a static member, which gets the partitions it had."""
    topic, name = new_topic(endpoint, 2), fresh("group")
    with consumer(endpoint, name) as other:
        other.subscribe([topic])
        with consumer(endpoint, name, group_instance_id="one") as first:
            first.subscribe([topic])
            _wait_sizes(other, first)
            mine = [part.partition for part in first.assignment()]
        with consumer(endpoint, name, group_instance_id="one") as again:
            again.subscribe([topic])
            _wait_for_assignment(again, 1)
            check([part.partition for part in again.assignment()] == mine, "other partitions")


def _wait_sizes(first: Consumer, second: Consumer) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while [len(first.assignment()), len(second.assignment())] != [1, 1]:
        check(time.monotonic() < deadline, "two members do not share")
        for each in (first, second):
            each.poll(0.1)


def transactions(endpoint: Endpoint) -> None:
    """Commit, abort, and read committed; the producer with an older epoch is fenced."""
    topic, name = new_topic(endpoint), fresh("transactional")
    producer = _transactional(endpoint, name)
    for place, commits in enumerate((True, False, True)):
        producer.begin_transaction()
        for value in values_of(10, place * 10):
            producer.produce(topic, value, partition=0)
        if commits:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
    expected = values_of(10) + values_of(10, 20)
    found = read_values(endpoint, topic, 20, isolation_level="read_committed")
    check(found == expected, "read committed", found)
    found = read_values(endpoint, topic, 30, isolation_level="read_uncommitted")
    check(found == values_of(30), "read uncommitted", found)
    producer.begin_transaction()
    producer.produce(topic, b"of the older", partition=0)
    producer.flush(TIMEOUT_S)
    newer = _transactional(endpoint, name)
    try:
        producer.commit_transaction(TIMEOUT_S)
    except KafkaException as error:
        check(error.args[0].fatal() or error.args[0].code() in FENCED, error)
    else:
        raise AssertionError("the older producer could commit")
    newer.begin_transaction()
    newer.produce(topic, b"of the newer", partition=0)
    newer.commit_transaction(TIMEOUT_S)
    found = read_values(endpoint, topic, 21, isolation_level="read_committed")
    check(found == [*expected, b"of the newer"], "after fencing", found[-2:])


FENCED: Final = (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH, KafkaError.PRODUCER_FENCED)


def _transactional(endpoint: Endpoint, name: str) -> Producer:
    producer = Producer({**endpoint.librdkafka, "transactional.id": name})
    producer.init_transactions(TIMEOUT_S)
    return producer


def exactly_once(endpoint: Endpoint) -> None:
    """Copy a topic in transactions that commit the offsets read, some of them aborted."""
    source_topic, sink, name = new_topic(endpoint), new_topic(endpoint), fresh("group")
    produce(endpoint, source_topic, values_of())
    producer = _transactional(endpoint, fresh("transactional"))
    with consumer(endpoint, name, isolation_level="read_committed") as source:
        source.subscribe([source_topic])
        for commits in (True, False, True):
            place = source.committed([TopicPartition(source_topic, 0)], timeout=TIMEOUT_S)[0]
            count = 20 if commits and place.offset < 0 else RECORDS - max(place.offset, 0)
            messages = read(source, count)
            producer.begin_transaction()
            for message in messages:
                producer.produce(sink, message.value(), partition=0)
            positions = source.position([TopicPartition(source_topic, 0)])
            producer.send_offsets_to_transaction(
                positions, source.consumer_group_metadata(), TIMEOUT_S
            )
            if commits:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
                source.seek(TopicPartition(source_topic, 0, place.offset))
        place = source.committed([TopicPartition(source_topic, 0)], timeout=TIMEOUT_S)[0]
        check(place.offset == RECORDS, "committed with the transactions", place)
    found = read_values(endpoint, sink, RECORDS, isolation_level="read_committed")
    check(found == values_of(), "copied", len(found))


def admin_topics(endpoint: Endpoint) -> None:
    """Create, describe, configure, grow and delete topics."""
    admin = AdminClient(endpoint.librdkafka)
    topic = new_topic(endpoint, 2, {"retention.ms": "3600000"})
    check(len(admin.list_topics(topic, TIMEOUT_S).topics[topic].partitions) == 2, "partitions")
    resource = ConfigResource(ResourceType.TOPIC, topic)
    check(_config(admin, resource)["retention.ms"].value == "3600000", "retention.ms")
    entry = ConfigEntry("retention.ms", "7200000", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([change])[change].result(TIMEOUT_S)
    check(_config(admin, resource)["retention.ms"].value == "7200000", "retention.ms changed")
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(TIMEOUT_S)
    produce(endpoint, topic, values_of(), partition=4)
    place = TopicPartition(topic, 4)
    for spec, offset in ((OffsetSpec.latest(), RECORDS), (OffsetSpec.earliest(), 0)):
        check(_offset(endpoint, place, spec) == offset, "offset")
    until = TopicPartition(topic, 4, 25)
    another = AdminClient(endpoint.librdkafka)
    another.delete_records([until])[until].result(TIMEOUT_S)
    check(_offset(endpoint, place, OffsetSpec.earliest()) == 25, "records were not deleted")
    check(admin.describe_cluster().result(TIMEOUT_S).nodes, "no nodes")
    admin.delete_topics([topic])[topic].result(TIMEOUT_S)
    deadline = time.monotonic() + TIMEOUT_S
    while topic in admin.list_topics(timeout=TIMEOUT_S).topics:
        check(time.monotonic() < deadline, "the topic stays")
        time.sleep(0.1)


def _offset(endpoint: Endpoint, place: TopicPartition, spec: OffsetSpec) -> int:
    """Query with a new client, which has no cached value."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        admin = AdminClient(endpoint.librdkafka)
        try:
            asked = admin.list_offsets({place: spec}, isolation_level=IsolationLevel.READ_COMMITTED)
            return int(asked[place].result(TIMEOUT_S).offset)
        except KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _config(admin: AdminClient, resource: ConfigResource) -> dict[str, ConfigEntry]:
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result(TIMEOUT_S)
    return found


def admin_groups(endpoint: Endpoint) -> None:
    """List, describe, alter and delete groups and their offsets."""
    admin = AdminClient(endpoint.librdkafka)
    topic, name = new_topic(endpoint), fresh("group")
    produce(endpoint, topic, values_of())
    with consumer(endpoint, name) as source:
        source.subscribe([topic])
        read(source, RECORDS)
        source.commit(asynchronous=False)
        described = admin.describe_consumer_groups([name])[name].result(TIMEOUT_S)
        check(described.state.name == "STABLE", "state", described.state)
        check(len(described.members) == 1, "members")
    described = admin.describe_consumer_groups([name])[name].result(TIMEOUT_S)
    check(described.state.name == "EMPTY", "state when empty", described.state)
    listed = admin.list_consumer_groups().result(TIMEOUT_S).valid
    check(name in [each.group_id for each in listed], "not listed")
    moved = ConsumerGroupTopicPartitions(name, [TopicPartition(topic, 0, 7)])
    admin.alter_consumer_group_offsets([moved])[name].result(TIMEOUT_S)
    asked = [ConsumerGroupTopicPartitions(name)]
    offsets = admin.list_consumer_group_offsets(asked)[name].result(TIMEOUT_S)
    check([partition.offset for partition in offsets.topic_partitions] == [7], "offsets", offsets)
    admin.delete_consumer_groups([name])[name].result(TIMEOUT_S)
    listed = admin.list_consumer_groups().result(TIMEOUT_S).valid
    check(name not in [each.group_id for each in listed], "still listed")


SCENARIOS: Final = tuple(
    Scenario("confluent-kafka", name, run)
    for name, run in (
        ("every compression", every_compression),
        ("every acks", every_acks),
        ("keys, headers, times", particulars),
        ("seek by time", seek_by_time),
        ("large records", large_records),
        ("idempotent", idempotent),
        ("group, classic", group(CLASSIC)),
        ("group, KIP-848", group(NEWER)),
        ("static member", static_member),
        ("transactions", transactions),
        ("exactly once copy", exactly_once),
        ("admin: topics", admin_topics),
        ("admin: groups", admin_groups),
    )
)
