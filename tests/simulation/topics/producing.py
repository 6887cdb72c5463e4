"""Producers of partitions: those that count on every acknowledgement, and careless ones."""

import asyncio
import contextlib
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import InitProducerIdRequest, InitProducerIdResponse
from broker_layer.kafka.record_batch import Producer, Record, build_batch
from broker_layer.kafka.versions import ApiKey
from broker_layer.log.topic_config_table import DEFINITIONS
from tests.simulation.topics.broker_nodes import KafkaNode
from tests.simulation.topics.frames import (
    PRODUCE_VERSION,
    Produced,
    produce_body,
    read_produced,
)
from tests.simulation.topics.history import Leader, Place, SentRecord, TransactionHistory
from tests.simulation.topics.kafka_client import (
    Connection,
    KafkaClient,
    Refused,
    Unanswered,
    name_of,
)

INIT_VERSION: Final = 1
PRODUCE_TIMEOUT_MS: Final = 2_500
LINES_MAX: Final = 3
RETRIED: Final = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNSTABLE_OFFSET_COMMIT,
)


@dataclass(frozen=True, slots=True)
class Identity:
    """A producer id, its epoch, and the transactional id if there is one."""

    producer_id: int = -1
    epoch: int = -1
    transactional_id: str | None = None


@dataclass(slots=True)
class SentBatch:
    """One batch, and its records."""

    data: bytes
    records: list[SentRecord]


class SkippedSequenceError(Exception):
    """A batch was refused as out of order, behind one without a final answer."""


class PartitionSender:
    """State of one producer for one partition, under one identity.

    One that renews its epoch does what librdkafka does for OUT_OF_ORDER_SEQUENCE_NUMBER behind a
    batch without a final answer: it sends all such batches again under another identity. A batch
    that is in the log nevertheless is then there twice. Others send the batches again as they were.
    """

    def __init__(
        self,
        node: KafkaNode,
        client: KafkaClient,
        place: Place,
        name: str,
        identity: Identity,
        *,
        renews_epoch: bool = False,
    ) -> None:
        self.place = place
        self._renews_epoch = renews_epoch
        self._node = node
        self._client = client
        self._name = f"{name}/{place[0]}-{place[1]}"
        self.identity = identity
        self._sequence = 0
        self._number = 0
        self._queue: deque[SentBatch] = deque()
        self._has_success = False
        self._leader = Leader(-1, 0)

    def add(
        self, rng: random.Random, value_bytes: int, transaction: TransactionHistory | None = None
    ) -> "SentBatch":
        """Add one more batch to send, and return it."""
        count = rng.randint(1, LINES_MAX)
        sent = []
        for _ in range(count):
            self._number += 1
            text = f"{self._name}#{self._number}"
            if transaction is not None:
                text += f" of {transaction.name}"
            value = text.encode().ljust(rng.randint(1, value_bytes), b".")
            is_unique = self.identity.producer_id >= 0
            record = SentRecord(value, self.place, self._name, self._number, is_unique, transaction)
            self._node.topics.history.send(record)
            sent.append(record)
        batch = self._built(sent, is_transactional=transaction is not None)
        self._queue.append(batch)
        return batch

    def _built(self, sent: list[SentRecord], *, is_transactional: bool) -> SentBatch:
        now_ms = self._node.wall_clock_ms()
        records = [Record(n, now_ms, None, sent_record.value) for n, sent_record in enumerate(sent)]
        producer = Producer()
        if self.identity.producer_id >= 0:
            producer = Producer(self.identity.producer_id, self.identity.epoch, self._sequence)
            self._sequence += len(sent)
        data = build_batch(records, producer=producer, is_transactional=is_transactional)
        return SentBatch(bytes(data), sent)

    def continue_as(self, identity: Identity) -> None:
        """Give the batches that are left to another identity."""
        self.identity, self._sequence, self._has_success = identity, 0, False
        left = [batch.records for batch in self._queue]
        self._queue = deque(self._built(records, is_transactional=False) for records in left)

    async def send_late(self, batch: "SentBatch", delay_s: float) -> None:
        """Send a batch once, after a delay, whatever the answer is."""
        await asyncio.sleep(delay_s)
        with contextlib.suppress(Unanswered):
            [answer] = await self._send([batch])
            if isinstance(answer, Produced) and not answer.error:
                return
        self._client.doubt_leader(*self.place)

    async def flush(self, in_flight_max: int, add_more: Callable[[], object] | None = None) -> None:
        """Send until all batches are acknowledged; `add_more` adds one while some are repeated.

        Raises Refused if that is impossible, SkippedSequenceError.
        """
        while self._queue:
            window = 1 if not self._has_success else in_flight_max
            batches = [self._queue[n] for n in range(min(window, len(self._queue)))]
            try:
                answers = await self._send(batches)
            except Unanswered:
                answers = [Unanswered("")]
            is_whole = True
            for batch, answer in zip(batches, answers, strict=False):
                is_whole = self._take(batch, answer, is_whole=is_whole) and is_whole
            if not is_whole or len(answers) < len(batches):
                self._client.doubt_leader(*self.place)
                await self._client.pause()
                if add_more is not None and len(self._queue) < in_flight_max:
                    add_more()

    async def _send(self, batches: list[SentBatch]) -> "list[Produced | Unanswered]":
        topic, partition = self.place
        broker = await self._client.leader_of(topic, partition)
        connection = await self._client.connection(broker)
        self._leader = self._client.leader(broker)
        calls = []
        for batch in batches:
            body = produce_body(
                name_of(topic),
                partition,
                batch.data,
                transactional_id=self.identity.transactional_id,
                timeout_ms=PRODUCE_TIMEOUT_MS,
            )
            calls.append(connection.send(ApiKey.PRODUCE, PRODUCE_VERSION, body))
        answers: list[Produced | Unanswered] = []
        for call in calls:
            try:
                answers.append(read_produced(await self._client.answered(connection, call)))
            except Unanswered as error:
                answers.append(error)
        return answers

    def _take(self, batch: SentBatch, answer: "Produced | Unanswered", *, is_whole: bool) -> bool:
        """Return whether a batch is finished. Raises Refused."""
        if isinstance(answer, Unanswered):
            return False
        code = ErrorCode(answer.error)
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            if batch is self._queue[0]:
                self._queue.popleft()
                self._has_success = True
                base = answer.base_offset if code is ErrorCode.NONE else -1
                self._node.topics.history.note_acknowledged(self._leader, batch.records, base)
                return True
            return False  # an earlier one failed: both are sent again
        is_behind = code is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_whole
        if is_behind and self._renews_epoch:
            raise SkippedSequenceError
        if is_behind or code in RETRIED:
            return False
        self._node.topics.model.note("refused", f"{self._name}: {code.name}")
        raise Refused(code)


async def produce(node: KafkaNode, client: KafkaClient, rng: random.Random) -> None:
    """Produce to all partitions until the run is over."""
    is_idempotent = rng.random() < node.topics.topics_plan.work.idempotent_share
    places = node.topics.partitions()
    rngs = [random.Random(rng.random()) for _ in places]
    await asyncio.gather(
        *(
            _produce_to(node, client, own, place, is_idempotent=is_idempotent)
            for place, own in zip(places, rngs, strict=True)
        )
    )


async def _produce_to(
    node: KafkaNode,
    client: KafkaClient,
    rng: random.Random,
    place: Place,
    *,
    is_idempotent: bool,
) -> None:
    cluster, work = node.topics, node.topics.topics_plan.work
    in_flight_max = rng.choice((1, 2, 5)) if is_idempotent else 1
    incarnations = 0
    while not cluster.is_over:
        incarnations += 1
        identity = await new_identity(client, node) if is_idempotent else Identity()
        name = f"{node.incarnation}.{incarnations}"
        renews = is_idempotent and "pause_all_bookies" in node.topics.topics_plan.fault_every_s
        sender = PartitionSender(node, client, place, name, identity, renews_epoch=renews)
        add = partial(sender.add, rng, work.value_bytes)
        try:
            while not cluster.is_over:
                for _ in range(rng.randint(1, 4)):
                    add()
                while True:
                    try:
                        await sender.flush(in_flight_max, add if renews else None)
                        break
                    except SkippedSequenceError:
                        sender.continue_as(await new_identity(client, node))
                await asyncio.sleep(work.gap_s * 2 * rng.random())
        except Refused:
            await client.pause()


async def new_identity(
    client: KafkaClient,
    node: KafkaNode,
    transactional_id: str | None = None,
    timeout_ms: int = 60_000,
    is_over: Callable[[], bool] = lambda: False,
) -> Identity:
    """Return a producer id, retrying until there is one. Raises Refused."""
    kind = 1
    while True:
        try:
            if transactional_id is None:
                broker = client.rng.randrange(len(node.topics.brokers))
            else:
                broker = await client.coordinator_of(kind, transactional_id)
            response = await client.ask(
                broker,
                ApiKey.INIT_PRODUCER_ID,
                INIT_VERSION,
                InitProducerIdRequest(
                    transactional_id=transactional_id, transaction_timeout_ms=timeout_ms
                ),
            )
            assert isinstance(response, InitProducerIdResponse)
            if not response.error_code:
                return Identity(response.producer_id, response.producer_epoch, transactional_id)
            if response.error_code not in RETRIED:
                raise Refused(response.error_code)
        except Unanswered:
            pass
        if transactional_id is not None:
            client.doubt_coordinator(kind, transactional_id)
        if is_over():
            raise Refused(ErrorCode.REQUEST_TIMED_OUT)
        await client.pause()


BURST_MAX: Final = 4
AHEAD_MS_MAX: Final = int(DEFINITIONS["message.timestamp.after.max.ms"].default or "")
"""Time by which a record may be ahead of its leader's clock: no plan sets another one."""


async def produce_carelessly(node: KafkaNode, client: KafkaClient, rng: random.Random) -> None:
    """Produce to all partitions, with acks 0 or 1, until the run is over.

    Producers with acks 0 and 1, which do not wait until records are committed.

    Invariants: with acks=0 a batch is sent once, and the batches of one connection belong to one
    producer: they are in the log in order, each at most once. With acks=1 a batch is sent until it
    is acknowledged, and may be in the log several times; it is given up only if its times are too
    far ahead of the leader's clock.
    """
    acks = rng.choice((0, 1))
    places = node.topics.partitions()
    works = [_Careless(node, client, random.Random(rng.random()), place) for place in places]
    await asyncio.gather(*(work.run(acks) for work in works))


class _Careless:
    """State of one producer for one partition."""

    def __init__(
        self, node: KafkaNode, client: KafkaClient, rng: random.Random, place: Place
    ) -> None:
        self._node = node
        self._client = client
        self._rng = rng
        self._place = place
        self._number = 0
        self._connection: Connection | None = None
        self._connection_count = 0

    async def run(self, acks: int) -> None:
        """Send until the run is over."""
        cluster = self._node.topics
        while not cluster.is_over:
            try:
                for _ in range(self._rng.randint(1, BURST_MAX)):
                    await (self._send_once() if acks == 0 else self._send_until_stored())
            except Unanswered:
                self._client.doubt_leader(*self._place)
                await self._client.pause()
            await asyncio.sleep(cluster.topics_plan.work.gap_s * 2 * self._rng.random())

    async def _send_once(self) -> None:
        broker = await self._client.leader_of(*self._place)
        connection = await self._client.connection(broker)
        if connection is not self._connection:
            self._connection = connection
            self._connection_count += 1
        producer = f"{self._node.incarnation}/{self._place}/{self._connection_count}"
        records, data = self._batch(producer, is_unique=True)
        self._node.topics.model.note("careless", f"{records[0].value!r}")
        connection.tell(ApiKey.PRODUCE, PRODUCE_VERSION, self._body(data, 0))
        if self._rng.random() < 0.1:  # no answer would report that the leader has changed
            self._client.doubt_leader(*self._place)

    async def _send_until_stored(self) -> None:
        cluster, place = self._node.topics, self._place
        written_ms = self._node.wall_clock_ms()
        records, data = self._batch(f"{self._node.incarnation}/{place}", is_unique=False)
        while not cluster.is_over:
            try:
                broker = await self._client.leader_of(*place)
                connection = await self._client.connection(broker)
                epoch = cluster.brokers[broker].epoch_led(place)
                limit_ms = cluster.brokers[broker].wall_clock_ms() + AHEAD_MS_MAX
                call = connection.send(ApiKey.PRODUCE, PRODUCE_VERSION, self._body(data, 1))
                produced = read_produced(await self._client.answered(connection, call))
            except Unanswered:
                code = ErrorCode.NETWORK_EXCEPTION
            else:
                code = ErrorCode(produced.error)
                if code is ErrorCode.NONE:
                    for offset, record in enumerate(records, produced.base_offset):
                        cluster.history.note_stored(record, offset, epoch)
                    return
                if code is ErrorCode.INVALID_TIMESTAMP and written_ms > limit_ms:
                    return
            if code not in RETRIED:
                cluster.model.report("careless", f"{place}: acks=1 was refused with {code.name}")
            self._client.doubt_leader(*place)
            await self._client.pause()

    def _batch(self, producer: str, *, is_unique: bool) -> tuple[list[SentRecord], bytes]:
        cluster, rng = self._node.topics, self._rng
        sent = []
        for _ in range(rng.randint(1, LINES_MAX)):
            self._number += 1
            text = f"{producer}#{self._number}".encode()
            value = text.ljust(rng.randint(1, cluster.topics_plan.work.value_bytes), b".")
            record = SentRecord(value, self._place, producer, self._number, is_unique)
            cluster.history.send(record)
            sent.append(record)
        now_ms = self._node.wall_clock_ms()
        lines = [
            Record(number, now_ms, None, sent_record.value)
            for number, sent_record in enumerate(sent)
        ]
        return sent, bytes(build_batch(lines))

    def _body(self, data: bytes, acks: int) -> bytes:
        topic, partition = self._place
        return produce_body(
            topic,
            partition,
            data,
            transactional_id=None,
            timeout_ms=PRODUCE_TIMEOUT_MS,
            acks=acks,
        )
