"""Producers with acks 0 and 1, which do not wait until records are committed.

Leaves producers that wait to `producing`, and judging the records to `history` and `ending`.

Invariants: with acks=0 a batch is sent once, and the batches of one connection belong to one
producer: they are in the log in order, each at most once. With acks=1 a batch is sent until it is
acknowledged, and may be in the log several times; it is given up only if its times are too far
ahead of the leader's clock.
"""

import asyncio
import random
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.record_batch import Record, build_batch
from broker_layer.kafka.versions import ApiKey
from broker_layer.log.settings.topic_config_table import DEFINITIONS
from tests.simulation.topics.broker_nodes import KafkaNode
from tests.simulation.topics.frames import PRODUCE_VERSION, produce_body, read_produced
from tests.simulation.topics.history import Place, SentRecord
from tests.simulation.topics.kafka_client import Connection, KafkaClient, Unanswered
from tests.simulation.topics.producing import PRODUCE_TIMEOUT_MS, RETRIED

LINES_MAX: Final = 3
BURST_MAX: Final = 4
AHEAD_MS_MAX: Final = int(DEFINITIONS["message.timestamp.after.max.ms"].default or "")
"""Time by which a record may be ahead of its leader's clock: no plan sets another one."""


async def produce_carelessly(node: KafkaNode, client: KafkaClient, rng: random.Random) -> None:
    """Produce to all partitions, with acks 0 or 1, until the run is over."""
    acks = rng.choice((0, 1))
    places = node.topics.partitions()
    works = [_Careless(node, client, random.Random(rng.random()), place) for place in places]
    await asyncio.gather(*(each.run(acks) for each in works))


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
        lines = [Record(number, now_ms, None, each.value) for number, each in enumerate(sent)]
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
