"""Small Kafka client on a simulated machine: connections, leaders, coordinators.

Leaves the requests to `producing`, `transacting`, `reading` and `grouping`.

Invariants: the requests of one connection are sent in the order of the calls. A call ends with its
answer, or with `Unanswered` when its time or its connection is over. The known leader of a
partition is dropped at the first doubt, but its epoch is kept: answers with older epochs are
ignored.
"""

import asyncio
import random
import struct
import uuid
from collections import deque
from typing import TYPE_CHECKING, Final

from typing_extensions import override  # `typing` has it from 3.12 on

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    ApiMessage,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataRequest,
    MetadataResponse,
    decode_response,
    encode_request,
)
from broker_layer.kafka.versions import SERVED, ApiKey
from tests.simulation.topics.history import Leader

if TYPE_CHECKING:
    from tests.simulation.topics.topic_cluster import TopicCluster

KAFKA_PORT: Final = 9092
CONNECT_S: Final = 2.0
CALL_S: Final = 4.0
BACKOFF_S: Final = 0.3
GROUP: Final = 0
TRANSACTION: Final = 1
METADATA_VERSION: Final = 10
FIND_COORDINATOR_VERSION: Final = 2
ID_CHARS: Final = 12
NOT_JUDGED: Final = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)
"""Error codes with which a broker judges no request of a group."""
_HEAD = struct.Struct(">ihhi")


def named_apart(name: str, topic_id: uuid.UUID | None) -> str:
    """Return the name that identifies this topic among all topics of its name."""
    return f"{name}@{'' if topic_id is None else topic_id.hex[:ID_CHARS]}"


def name_of(topic: str) -> str:
    """Return the topic's name in requests, from a name that identifies it."""
    return topic.partition("@")[0]


class Unanswered(Exception):  # noqa: N818 - it says what happened
    """No answer came: whether the request had an effect is unknown."""


class Refused(Exception):  # noqa: N818 - as above
    """A broker refused the request."""

    def __init__(self, code: int) -> None:
        super().__init__(ErrorCode(code).name)
        self.code = ErrorCode(code)


class Connection(asyncio.Protocol):
    """One connection to one broker."""

    def __init__(self, client_id: str) -> None:
        self._client_id = client_id.encode()
        self._transport: asyncio.Transport | None = None
        self._received = bytearray()
        self._calls: deque[asyncio.Future[memoryview]] = deque()
        self._number = 0
        self.is_open = True

    @override
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    @override
    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) >= 4:
            length = int.from_bytes(self._received[:4], "big")
            if len(self._received) < 4 + length:
                return
            body = memoryview(bytes(self._received[8 : 4 + length]))
            del self._received[: 4 + length]
            call = self._calls.popleft()
            if not call.done():
                call.set_result(body)

    @override
    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        while self._calls:
            call = self._calls.popleft()
            if not call.done():
                call.set_exception(Unanswered("the connection ended"))
                call.exception()

    def send(self, api_key: ApiKey, version: int, body: bytes) -> "asyncio.Future[memoryview]":
        """Send a request; the future gets the answer after its correlation id."""
        call: asyncio.Future[memoryview] = asyncio.get_running_loop().create_future()
        if not self.is_open or self._transport is None:
            call.set_exception(Unanswered("the connection has ended"))
            call.exception()
            return call
        self._calls.append(call)
        self.tell(api_key, version, body)
        return call

    def tell(self, api_key: ApiKey, version: int, body: bytes) -> None:
        """Send a request that has no answer, unless the connection has ended."""
        if not self.is_open or self._transport is None:
            return
        self._number += 1
        name, tags = self._client_id, b"\0" if version >= SERVED[api_key].flexible_from else b""
        head = _HEAD.pack(10 + len(name) + len(tags) + len(body), api_key, version, self._number)
        self._transport.write(head + struct.pack(">h", len(name)) + name + tags + body)

    def close(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()
        self.is_open = False


class KafkaClient:
    """Knowledge of one process about the brokers."""

    def __init__(self, cluster: "TopicCluster", name: str, rng: random.Random) -> None:
        self._cluster = cluster
        self._name = name
        self.rng = rng
        self._connections: dict[int, Connection] = {}
        self._connecting: dict[int, asyncio.Task[Connection]] = {}
        self._leaders: dict[tuple[str, int], int] = {}
        self._epochs: dict[tuple[str, int], int] = {}
        self._coordinators: dict[tuple[int, str], int] = {}
        self.topic_ids: dict[str, uuid.UUID] = {}
        """Topics by the names that identify them."""

    # -- calls -----------------------------------------------------------------------------------

    async def connection(self, broker: int) -> Connection:
        """Return the connection to a broker. Raises Unanswered."""
        found = self._connections.get(broker)
        if found is not None and found.is_open:
            return found
        task = self._connecting.get(broker)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._connect(broker))
            self._connecting[broker] = task
            task.add_done_callback(lambda _: self._connecting.pop(broker, None))
        results = await asyncio.gather(asyncio.shield(task), return_exceptions=True)
        if isinstance(results[0], BaseException):
            raise Unanswered("no broker listens") from results[0]
        return results[0]

    async def call(
        self,
        broker: int,
        api_key: ApiKey,
        version: int,
        body: bytes,
        patience_s: float = CALL_S,
    ) -> memoryview:
        """Return the answer's bytes. Raises Unanswered."""
        connection = await self.connection(broker)
        call = connection.send(api_key, version, body)
        return await self.answered(connection, call, patience_s)

    async def answered(
        self,
        connection: Connection,
        call: "asyncio.Future[memoryview]",
        patience_s: float = CALL_S,
    ) -> memoryview:
        """Wait for the answer within the client's time limit. Raises Unanswered."""
        try:
            async with asyncio.timeout(patience_s):
                return await call
        except TimeoutError as error:
            connection.close()
            raise Unanswered("no answer in time") from error

    async def ask(
        self,
        broker: int,
        api_key: ApiKey,
        version: int,
        request: ApiMessage,
        patience_s: float = CALL_S,
    ) -> ApiMessage:
        """Return the answer to a message. Raises Unanswered."""
        body = bytes(encode_request(request, version))
        answer = await self.call(broker, api_key, version, body, patience_s)
        skipped = 1 if version >= SERVED[api_key].flexible_from else 0
        return decode_response(api_key, version, answer[skipped:])

    def close(self) -> None:
        """End every connection."""
        for connection in self._connections.values():
            connection.close()

    async def pause(self) -> None:
        """Wait before a retry."""
        await asyncio.sleep(BACKOFF_S * (0.5 + self.rng.random()))

    # -- leaders and coordinators ----------------------------------------------------------------

    async def leader_of(self, topic: str, partition: int) -> int:
        """Return a partition's leader. Raises Unanswered."""
        key = topic, partition
        if key not in self._leaders:
            await self.look_up(topic)
        leader = self._leaders.get(key, -1)
        if leader < 0:
            self._leaders.pop(key, None)
            raise Unanswered("there is no leader")
        return leader

    async def coordinator_of(self, kind: int, key: str) -> int:
        """Return the coordinator of a group or transactional id. Raises Unanswered."""
        found = self._coordinators.get((kind, key))
        if found is not None:
            return found
        response = await self.ask(
            self.any_broker(),
            ApiKey.FIND_COORDINATOR,
            FIND_COORDINATOR_VERSION,
            FindCoordinatorRequest(key=key, key_type=kind),
        )
        assert isinstance(response, FindCoordinatorResponse)
        if response.error_code:
            code = ErrorCode(response.error_code).name
            raise Unanswered(f"no coordinator: {code} {response.error_message}")
        self._coordinators[kind, key] = response.node_id
        return int(response.node_id)

    def epoch_of(self, topic: str, partition: int) -> int:
        """Return the newest known leader epoch."""
        return self._epochs.get((topic, partition), -1)

    def leader(self, broker: int) -> Leader:
        """Return the process that runs on a broker's machine now."""
        node = self._cluster.brokers[broker]
        return Leader(broker, node.starts, node.may_be_replaced)

    def lapsed_session(self, broker: int) -> tuple[int, int] | None:
        """Return the session of a broker's process if it has lapsed; None while it lives."""
        node = self._cluster.brokers[broker]
        if node.store is None or not node.may_be_replaced:
            return None
        return node.starts, node.store.session_id

    def judge_lapse(self, broker: int, lapsed: tuple[int, int] | None, code: int) -> None:
        """Check that a coordinator whose session had `lapsed` before a request, and did not come
        back, did not judge it: another broker may be the coordinator.
        """
        is_lapsed = lapsed is not None and lapsed == self.lapsed_session(broker)
        if is_lapsed and code not in NOT_JUDGED:
            answer = ErrorCode(code).name
            text = f"broker {broker} answered {self._name} {answer} after its session had lapsed"
            self._cluster.model.report("lapsed coordinator", text)

    def doubt_leader(self, topic: str, partition: int) -> None:
        """Drop the known leader of a partition."""
        self._leaders.pop((topic, partition), None)

    def doubt_coordinator(self, kind: int, key: str) -> None:
        """Drop the known coordinator."""
        self._coordinators.pop((kind, key), None)

    async def look_up(self, topic: str) -> str:
        """Look up the leaders of this topic and those of the plan.

        Return the name that identifies the topic, "" if there is none. Raises Unanswered.
        """
        names = dict.fromkeys([*self._cluster.topic_names, name_of(topic)])
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in names],
            allow_auto_topic_creation=False,
        )
        broker = self.any_broker()
        response = await self.ask(broker, ApiKey.METADATA, METADATA_VERSION, request)
        assert isinstance(response, MetadataResponse)
        found = ""
        for response_topic in response.topics:
            apart = named_apart(response_topic.name or "", response_topic.topic_id)
            for row in response_topic.partitions:
                for name in (response_topic.name or "", apart):
                    self._learn(name, row)
            if response_topic.name == name_of(topic) and not response_topic.error_code:
                found = apart
                self.topic_ids[apart] = response_topic.topic_id
        return found

    def _learn(
        self, name: str, row: MetadataResponse.MetadataResponseTopic.MetadataResponsePartition
    ) -> None:
        key = name, row.partition_index
        is_old = row.leader_epoch < self._epochs.get(key, -1)
        self._leaders[key] = -1 if row.error_code or is_old else row.leader_id
        self._epochs[key] = max(row.leader_epoch, self._epochs.get(key, -1))

    def any_broker(self) -> int:
        """Return a random broker."""
        return self.rng.randrange(len(self._cluster.brokers))

    async def _connect(self, broker: int) -> Connection:
        async with asyncio.timeout(CONNECT_S):
            _, connection = await asyncio.get_running_loop().create_connection(
                lambda: Connection(self._name), f"broker-{broker}", KAFKA_PORT
            )
        self._connections[broker] = connection
        return connection
