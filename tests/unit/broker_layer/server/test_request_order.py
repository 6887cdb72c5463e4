"""Tests of the order in which the requests of one connection begin."""

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from broker_layer.kafka.versions import ADVERTISED, BROKERS_ASK_FROM, SERVED, ApiKey
from broker_layer.server.access import ListenerAccess
from broker_layer.server.connections import BrokerConnection, ServerContext
from broker_layer.server.exchange import Exchange
from broker_layer.server.request_order import WORK, Part
from broker_layer.server.server_limits import BrokerCounters, BrokerLimits
from quire.server.server_log import ServerLog
from tests.support.broker_layer.login_setting import KafkaTransport, request_frame, turns
from tests.support.broker_layer.memory_topics import MemoryLog, MemoryTopics
from tests.support.broker_layer.served_broker import Ask, Wanted, batch, serving
from tests.until import until

Kind = tuple[ApiKey, int]
VERIFICATION: Kind = ApiKey.ADD_PARTITIONS_TO_TXN, BROKERS_ASK_FROM
OVERLAPPING = (
    (ApiKey.PRODUCE, ApiKey.PRODUCE),
    (ApiKey.FETCH, ApiKey.PRODUCE),
    (ApiKey.FETCH, ApiKey.HEARTBEAT),
    (ApiKey.FETCH, ApiKey.OFFSET_COMMIT),
    (ApiKey.FETCH, ApiKey.METADATA),
    (ApiKey.PRODUCE, ApiKey.METADATA),
    (ApiKey.METADATA, ApiKey.PRODUCE),
    (ApiKey.PRODUCE, ApiKey.OFFSET_COMMIT),
    (ApiKey.JOIN_GROUP, ApiKey.METADATA),
    (ApiKey.JOIN_GROUP, ApiKey.PRODUCE),
    (ApiKey.LIST_OFFSETS, ApiKey.LIST_OFFSETS),
)
"""Pairs that must not wait, for throughput and for groups whose members fetch."""


@dataclass
class Begun:
    """A connection, and the requests on it that have begun."""

    exchanges: list[Exchange] = field(default_factory=list)

    def __post_init__(self) -> None:
        counters = BrokerCounters()
        log = ServerLog(lambda: 1.0)
        limits = BrokerLimits()
        self.context = ServerContext(limits, counters, log, lambda: 1.0, self.exchanges.append)
        self.connection = BrokerConnection(self.context, ListenerAccess("OUTER"))
        self.transport = KafkaTransport(self.connection)
        self.connection.connection_made(self.transport)

    def send(self, *kinds: Kind) -> None:
        """Send requests in one piece; the place of each is its correlation id."""
        frames = [request_frame(*kind, b"", number) for number, kind in enumerate(kinds)]
        self.transport.deliver(b"".join(frames))

    @property
    def numbers(self) -> list[int]:
        """Places of the requests that have begun."""
        return [exchange.correlation_id for exchange in self.exchanges]

    async def answer(self, *numbers: int) -> None:
        """Answer requests that have begun."""
        for exchange in self.exchanges:
            if exchange.correlation_id in numbers:
                exchange.answer([b"done"])
        await turns()

    def answered(self) -> Iterable[int]:
        """Return the places of the requests whose answers were sent since the last call."""
        return [int.from_bytes(answer[:4]) for answer in self.transport.take_answers()]


def newest(*keys: ApiKey) -> list[Kind]:
    return [(key, ADVERTISED[key].max) for key in keys]


def test_each_api_has_its_work() -> None:
    assert set(WORK) == set(SERVED)


async def test_what_changes_a_part_keeps_its_place_among_what_reads_it() -> None:
    """Each API that changes or adds to a part, before and after each API that reads it."""
    late, early = list[str](), list[str]()
    for part in Part:
        changing = [key for key, work in WORK.items() if part in work.changes | work.adds]
        reading = [key for key, work in WORK.items() if part in work.reads | work.changes]
        for change in changing:
            for read in reading:
                first = Begun()
                first.send(*newest(change, read))
                if first.numbers != [0]:
                    early.append(f"{read.shown} after {change.shown}")
                await first.answer(0)
                if first.numbers != [0, 1]:
                    late.append(f"{read.shown} after {change.shown}")
                if part in WORK[change].adds:
                    continue
                second = Begun()
                second.send(*newest(read, change))
                if second.numbers != [0]:
                    early.append(f"{change.shown} after {read.shown}")
    assert not early, "these begin before the answer that they depend on"
    assert not late, "these do not begin after it"


@pytest.mark.parametrize("keys", OVERLAPPING, ids=lambda keys: "-".join(key.shown for key in keys))
async def test_what_does_not_see_each_other_overlaps(keys: tuple[ApiKey, ApiKey]) -> None:
    requests = Begun()
    requests.send(*newest(*keys))
    assert requests.numbers == [0, 1]
    await requests.answer(1)
    assert not requests.answered(), "answers keep the order of the requests"
    await requests.answer(0)
    assert requests.answered() == [0, 1]


async def test_verifications_of_a_broker_overlap() -> None:
    requests = Begun()
    requests.send(VERIFICATION, VERIFICATION)
    assert requests.numbers == [0, 1]


async def test_requests_behind_a_waiting_one_keep_their_order_with_it() -> None:
    requests = Begun()
    alter, describe = ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DESCRIBE_CONFIGS
    requests.send(*newest(describe, alter, describe, alter))
    for number in range(4):
        assert requests.numbers == list(range(number + 1))
        await requests.answer(number)
        assert requests.answered() == [number]


async def test_an_answered_change_holds_up_no_stream_of_produces() -> None:
    """Also if the stream never ends, so that some request is always unanswered."""
    requests = Begun()
    produce = SERVED[ApiKey.PRODUCE].max
    requests.send(*newest(ApiKey.CREATE_TOPICS, ApiKey.PRODUCE, ApiKey.PRODUCE))
    await requests.answer(0)
    await requests.answer(1)
    assert requests.numbers == [0, 1, 2]
    for _ in range(3):
        requests.send((ApiKey.PRODUCE, produce))
    assert len(requests.numbers) == 6


async def test_a_waiting_request_of_a_lost_connection_does_not_begin() -> None:
    requests = Begun()
    requests.send(*newest(ApiKey.CREATE_TOPICS, ApiKey.CREATE_TOPICS))
    requests.transport.close()
    await turns()
    await requests.answer(0)
    assert requests.numbers == [0]


async def test_a_malformed_request_that_waited_closes_the_connection() -> None:
    topics = MemoryTopics({("orders", 0): MemoryLog()})
    log = topics.logs["orders", 0]
    async with serving(topics) as broker:
        client = await broker.connect()
        client.send_fetch(Ask({"orders": {0: Wanted()}}, max_wait_ms=60_000))
        client.send(ApiKey.DELETE_RECORDS, 1, b"")
        await until(lambda: not log.callbacks.is_empty)
        writer = await broker.connect()
        writer.send_produce({"orders": {0: batch(b"one")}})
        await client.fetched()
        assert await client.is_closed()
        assert broker.services.counters.bad_frames == 1
