"""Scenarios of aiokafka: producing, consuming, groups, transactions."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.kafka.confluent_calls import FIRST_MS, new_topic
from tests.kafka.endpoint import Endpoint
from tests.kafka.scenario import RECORDS, TIMEOUT_S, Scenario, check, fresh, values_of
from tests.until import until_closed

COMPRESSIONS: Final = (None, "gzip", "snappy", "lz4", "zstd")


async def produce(
    endpoint: Endpoint, topic: str, values: Sequence[bytes], **settings: object
) -> None:
    """Produce values to partition 0, their times a second apart."""
    async with AIOKafkaProducer(**endpoint.keywords, linger_ms=5, **settings) as producer:
        waiting = [
            await producer.send(topic, value, partition=0, timestamp_ms=FIRST_MS + number * 1000)
            for number, value in enumerate(values)
        ]
        await asyncio.gather(*waiting)


async def read(source: AIOKafkaConsumer, count: int) -> list[bytes]:
    """Return the next values."""
    async with asyncio.timeout(TIMEOUT_S):
        return [(await source.getone()).value or b"" for _ in range(count)]


async def read_first(endpoint: Endpoint, topic: str, count: int, **settings: object) -> list[bytes]:
    """Return the first values of partition 0."""
    source = AIOKafkaConsumer(**endpoint.keywords, auto_offset_reset="earliest", **settings)
    async with source:
        source.assign([TopicPartition(topic, 0)])
        return await read(source, count)


async def every_compression(endpoint: Endpoint) -> None:
    """Produce with each compression and acks, and read all back."""
    topic = new_topic(endpoint)
    for place, compression in enumerate(COMPRESSIONS):
        values = values_of(start=place * RECORDS)
        await produce(endpoint, topic, values, compression_type=compression)
    count = RECORDS * len(COMPRESSIONS)
    check(await read_first(endpoint, topic, count) == values_of(count), "values differ")
    for acks in (0, 1, "all"):
        topic = new_topic(endpoint)
        await produce(endpoint, topic, values_of(), acks=acks)
        check(await read_first(endpoint, topic, RECORDS) == values_of(), "acks", acks)


async def seek_by_time(endpoint: Endpoint) -> None:
    """Look up an offset by time and the ends, and seek."""
    topic = new_topic(endpoint)
    await produce(endpoint, topic, values_of(), acks="all")
    place = TopicPartition(topic, 0)
    async with AIOKafkaConsumer(**endpoint.keywords) as source:
        source.assign([place])
        found = await source.offsets_for_times({place: FIRST_MS + 10_500})
        check(found[place].offset == 11, "offset of the time", found)
        source.seek(place, found[place].offset)
        check(await read(source, 1) == values_of(1, 11), "not where the time is")
        check((await source.end_offsets([place]))[place] == RECORDS, "end")
        check((await source.beginning_offsets([place]))[place] == 0, "beginning")


async def group(endpoint: Endpoint) -> None:
    """Two members share four partitions; a later one resumes."""
    topic, name = new_topic(endpoint, 4), fresh("group")
    async with AIOKafkaProducer(**endpoint.keywords) as producer:
        for number, value in enumerate(values_of()):
            await producer.send_and_wait(topic, value, partition=number % 4)

    def member() -> AIOKafkaConsumer:
        return AIOKafkaConsumer(
            topic,
            **endpoint.keywords,
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=300,
        )

    async with member() as first:
        check(sorted(await read(first, RECORDS)) == values_of(), "values differ")
        await first.commit()
        async with member() as second, asyncio.timeout(TIMEOUT_S):
            while [len(first.assignment()), len(second.assignment())] != [2, 2]:
                await first.getmany(timeout_ms=50)
                await second.getmany(timeout_ms=50)
    async with AIOKafkaProducer(**endpoint.keywords) as producer:
        await producer.send_and_wait(topic, b"later", partition=2)
    async with member() as third:
        check(await read(third, 1) == [b"later"], "did not resume")


async def transactions(endpoint: Endpoint) -> None:
    """Commit and abort, with the offsets of a group."""
    topic, name = new_topic(endpoint), fresh("group")
    identity = fresh("transactional")
    async with AIOKafkaProducer(**endpoint.keywords, transactional_id=identity) as producer:
        async with producer.transaction():
            for value in values_of(10):
                await producer.send(topic, value, partition=0)
            await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 10}, name)
        await producer.begin_transaction()
        for value in values_of(10, 10):
            await producer.send(topic, value, partition=0)
        await producer.flush()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send_and_wait(topic, b"last", partition=0)
    found = await read_first(endpoint, topic, 11, isolation_level="read_committed")
    check(found == [*values_of(10), b"last"], "read committed", found)
    async with AIOKafkaConsumer(**endpoint.keywords, group_id=name) as source:
        check(await source.committed(TopicPartition(topic, 0)) == 10, "offset of the transaction")


async def idempotent(endpoint: Endpoint) -> None:
    """Produce with an idempotent producer."""
    topic = new_topic(endpoint)
    await produce(endpoint, topic, values_of(500), enable_idempotence=True)
    check(await read_first(endpoint, topic, 500) == values_of(500), "values differ")


def _in_own_loop(scenario: Callable[[Endpoint], Awaitable[None]]) -> Callable[[Endpoint], None]:
    async def bounded(endpoint: Endpoint) -> None:
        async with asyncio.timeout(2 * TIMEOUT_S):
            await scenario(endpoint)
        await until_closed()

    def run(endpoint: Endpoint) -> None:
        asyncio.run(bounded(endpoint))

    return run


SCENARIOS: Final = tuple(
    Scenario("aiokafka", name, _in_own_loop(scenario))
    for name, scenario in (
        ("every compression and acks", every_compression),
        ("seek by time", seek_by_time),
        ("idempotent", idempotent),
        ("group", group),
        ("transactions", transactions),
    )
)
