"""A broker's server over topics in memory, on loopback, and a client that sends frames."""

import asyncio
import struct
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from random import Random

from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from broker_layer.kafka.messages import ApiMessage, decode_response, encode_request
from broker_layer.kafka.record_batch import NO_PRODUCER, Producer, Record, build_batch
from broker_layer.kafka.versions import ADVERTISED, ApiKey
from broker_layer.security.authorizer import Authorizer, AuthorizerConfig
from broker_layer.server.broker_services import BrokerServices, ServiceParts
from broker_layer.server.connections import BrokerServer
from broker_layer.server.listeners import ListenerAddress
from broker_layer.server.server_limits import BrokerLimits
from metadata.security.quota_set import QuotaSet
from quire.server.server_log import ServerLog
from tests.support.broker_layer.memory_acls import MemoryAcls
from tests.support.broker_layer.memory_topics import MemoryTopics
from tests.until import WAIT_S

Batches = Mapping[str, Mapping[int, bytes | None]]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The part of a Fetch for one partition."""

    offset: int = 0
    bytes_max: int = 2**20
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True)
class Ask:
    """Parameters of a Fetch; topics are given by name or id."""

    topics: Mapping[str | uuid.UUID, Mapping[int, Wanted]] = field(default_factory=dict)
    forgotten: Mapping[str, list[int]] = field(default_factory=dict)
    max_wait_ms: int = 0
    min_bytes: int = 1
    max_bytes: int = 2**20
    isolation_level: int = 0
    session_id: int = 0
    session_epoch: int = -1


def produce_body(
    version: int,
    topics: Batches,
    *,
    acks: int = -1,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
) -> bytes:
    """Encode a Produce request."""
    kind = ProduceRequest.TopicProduceData
    data = [
        kind(
            name=name,
            partition_data=[
                kind.PartitionProduceData(index=index, records=records)
                for index, records in partitions.items()
            ],
        )
        for name, partitions in topics.items()
    ]
    request = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=data
    )
    return bytes(request.encode(version=version))


def fetch_body(version: int, ask: Ask) -> bytes:
    """Encode a Fetch request."""
    kind = FetchRequest.FetchTopic
    asked = []
    for name, partitions in ask.topics.items():
        rows = [
            kind.FetchPartition(
                partition=index,
                fetch_offset=wanted.offset,
                partition_max_bytes=wanted.bytes_max,
                current_leader_epoch=wanted.leader_epoch,
            )
            for index, wanted in partitions.items()
        ]
        if isinstance(name, str):
            topic = kind(topic=name, partitions=rows)
        else:
            topic = kind(topic_id=name, partitions=rows)
        asked.append(topic)
    gone = [
        FetchRequest.ForgottenTopic(topic=name, partitions=partitions)
        for name, partitions in ask.forgotten.items()
    ]
    request = FetchRequest(
        topics=asked,
        forgotten_topics_data=gone,
        max_wait_ms=ask.max_wait_ms,
        min_bytes=ask.min_bytes,
        max_bytes=ask.max_bytes,
        isolation_level=ask.isolation_level,
        session_id=ask.session_id,
        session_epoch=ask.session_epoch,
    )
    return bytes(request.encode(version=version))


def bytes_of(row: FetchResponse.FetchableTopicResponse.PartitionData) -> bytes:
    """Return the batches of one partition of an answer."""
    if row.records is None:
        return b""
    assert isinstance(row.records, bytes | bytearray | memoryview)
    return bytes(row.records)


def batch(
    *values: bytes, producer: Producer = NO_PRODUCER, is_transactional: bool = False
) -> bytes:
    """Build a batch of records without keys."""
    records = [Record(index, 1_000 + index, None, value) for index, value in enumerate(values)]
    return bytes(build_batch(records, producer=producer, is_transactional=is_transactional))


@dataclass(slots=True)
class Client:
    """One connection."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    correlation_id: int = 0
    sent: list[tuple[ApiKey, int]] = field(default_factory=list)

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(data)

    def send(self, api_key: ApiKey, version: int, body: bytes | bytearray) -> int:
        self.correlation_id += 1
        head = struct.pack(">hhi", api_key, version, self.correlation_id) + b"\0\4test"
        if version >= ADVERTISED[api_key].flexible_from:
            head += b"\0"
        self.writer.write(struct.pack(">i", len(head) + len(body)) + head + body)
        self.sent.append((api_key, version))
        return self.correlation_id

    async def frame(self) -> tuple[int, bytes]:
        """Return the next answer: the correlation id, and the bytes after it."""
        async with asyncio.timeout(WAIT_S):
            (size,) = struct.unpack(">i", await self.reader.readexactly(4))
            data = await self.reader.readexactly(size)
        return int.from_bytes(data[:4], "big"), data[4:]

    async def body(self) -> bytes:
        """Return the body of the answer to the oldest unanswered request."""
        api_key, version = self.sent.pop(0)
        _, data = await self.frame()
        has_tags = api_key != ApiKey.API_VERSIONS and version >= ADVERTISED[api_key].flexible_from
        return data[1:] if has_tags else data

    async def ask(self, api_key: ApiKey, request: ApiMessage, version: int) -> ApiMessage:
        self.send(api_key, version, encode_request(request, version))
        return decode_response(api_key, version, await self.body())

    def send_produce(
        self,
        topics: Batches,
        version: int = 9,
        *,
        acks: int = -1,
        timeout_ms: int = 10_000,
        transactional_id: str | None = None,
    ) -> int:
        body = produce_body(
            version, topics, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id
        )
        return self.send(ApiKey.PRODUCE, version, body)

    async def produced(self, version: int = 9) -> ProduceResponse:
        response = ProduceResponse.decode(await self.body(), version=version)
        assert isinstance(response, ProduceResponse)
        return response

    def send_fetch(self, ask: Ask, version: int = 12) -> int:
        return self.send(ApiKey.FETCH, version, fetch_body(version, ask))

    async def fetched(self, version: int = 12) -> FetchResponse:
        response = FetchResponse.decode(await self.body(), version=version)
        assert isinstance(response, FetchResponse)
        return response

    async def is_closed(self) -> bool:
        async with asyncio.timeout(WAIT_S):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


@dataclass(slots=True)
class ServedBroker:
    """A server, its services and its topics."""

    topics: MemoryTopics
    services: BrokerServices
    server: BrokerServer
    addresses: tuple[ListenerAddress, ...]
    clients: list[Client] = field(default_factory=list)

    async def connect(self, listener: int = 0) -> Client:
        address = self.addresses[listener]
        reader, writer = await asyncio.open_connection(address.host, address.port, limit=2**26)
        client = Client(reader, writer)
        self.clients.append(client)
        return client


@asynccontextmanager
async def serving(
    topics: MemoryTopics,
    limits: BrokerLimits | None = None,
    acls: MemoryAcls | None = None,
    quotas: QuotaSet | None = None,
) -> AsyncIterator[ServedBroker]:
    """Serve topics on loopback, with an authorizer if `acls` is given."""
    loop = asyncio.get_running_loop()
    limits = limits or BrokerLimits(drain_timeout_s=1.0)
    log = ServerLog(loop.time)
    authorizer = None if acls is None else Authorizer(acls, AuthorizerConfig(), log.audit)
    parts = ServiceParts(1, topics, topics, topics, {}, "INNER", authorizer, quotas or QuotaSet())
    services = BrokerServices(parts, limits, log, Random(5), loop.time)
    server = BrokerServer(services.context)
    wanted = (ListenerAddress("INNER", "127.0.0.1", 0), ListenerAddress("OUTER", "127.0.0.1", 0))
    broker = ServedBroker(topics, services, server, await server.start(wanted))
    try:
        yield broker
    finally:
        for client in broker.clients:
            client.writer.close()
        services.answer_waiting()
        await server.close()
        await services.close()
