"""Readers of partitions, at both isolation levels, which also query their starts and ends.

Leaves judging the records to `history`.
"""

import asyncio
import random
from dataclasses import replace
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import ListOffsetsRequest, ListOffsetsResponse
from broker_layer.kafka.versions import ApiKey
from tests.simulation.topics.broker_nodes import KafkaNode
from tests.simulation.topics.frames import (
    FETCH_VERSION,
    FetchAsked,
    Fetched,
    fetch_body,
    read_fetched,
)
from tests.simulation.topics.history import History, Place, Reader, Seen
from tests.simulation.topics.kafka_client import KafkaClient, Refused, Unanswered, name_of

LIST_OFFSETS_VERSION: Final = 4
EARLIEST: Final = -2
LATEST: Final = -1
NONE: Final = int(ErrorCode.NONE)


class LogReader:
    """Reads one partition from an offset on."""

    def __init__(
        self, history: History, client: KafkaClient, who: str, place: Place, *, committed: bool
    ) -> None:
        self.position = 0
        self.high_watermark = -1
        self.last_stable_offset = -1
        self._history = history
        self._client = client
        self._who = f"{who} ({'committed' if committed else 'all'})"
        self.place = place
        self._committed = committed

    async def poll(self, *, wait_ms: int, bytes_max: int) -> list[Seen]:
        """Fetch once and advance. Raises Unanswered, Refused."""
        history, place, position = self._history, self.place, self.position
        broker = await self._client.leader_of(*place)
        connection = await self._client.connection(broker)
        epoch = self._client.epoch_of(*place)
        asked = FetchAsked(position, self._committed, wait_ms, bytes_max, epoch)
        leader = self._client.leader(broker)
        before = history.known(place, leader, epoch)
        body = fetch_body(name_of(place[0]), place[1], asked)
        call = connection.send(ApiKey.FETCH, FETCH_VERSION, body)
        fetched = read_fetched(await self._client.answered(connection, call))
        if fetched.error == ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._reset(position)
            return []
        if fetched.error:
            self._client.doubt_leader(*place)
            raise Refused(fetched.error)
        leader = replace(leader, may_be_replaced=self._client.leader(broker).may_be_replaced)
        reader = Reader(self._who, place, position, self._committed, epoch)
        shown = history.note_fetched(reader, leader, before, fetched)
        self._move(fetched)
        return shown

    def _move(self, fetched: Fetched) -> None:
        self.high_watermark = fetched.high_watermark
        self.last_stable_offset = fetched.last_stable_offset
        if fetched.batches:
            self.position = max(self.position, fetched.batches[-1][0].last_offset + 1)

    async def _reset(self, position: int) -> None:
        """Continue at the current start of the log; check that the position was out of range."""
        end = self._history.log(self.place).end
        start = await self.ask_offset(EARLIEST)
        if start <= position <= end:
            text = f"{self._who}: {position} is out of range, and the log begins at {start}"
            self._history.report("lost", self.place, text)
        self.position = max(start, min(position, end))

    async def ask_offset(self, timestamp_ms: int) -> int:
        """Send ListOffsets. Raises Unanswered, Refused."""
        topic, partition = self.place
        broker = await self._client.leader_of(*self.place)
        epoch = self._client.epoch_of(*self.place)
        row = ListOffsetsRequest.ListOffsetsTopic
        request = ListOffsetsRequest(
            replica_id=-1,
            isolation_level=0,
            topics=[
                row(
                    name=name_of(topic),
                    partitions=[
                        row.ListOffsetsPartition(
                            partition_index=partition,
                            current_leader_epoch=epoch,
                            timestamp=timestamp_ms,
                        )
                    ],
                )
            ],
        )
        leader = self._client.leader(broker)
        before = self._history.known(self.place, leader, epoch)
        response = await self._client.ask(
            broker, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request
        )
        assert isinstance(response, ListOffsetsResponse)
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            self._client.doubt_leader(*self.place)
            raise Refused(answer.error_code)
        offset = int(answer.offset)
        leader = replace(leader, may_be_replaced=self._client.leader(broker).may_be_replaced)
        is_end = timestamp_ms == LATEST
        end, start = (offset, None) if is_end else (None, offset)
        who = f"{self._who} (ListOffsets)"
        self._history.note_range(who, self.place, leader, before, end, start, epoch)
        return offset


async def read(node: KafkaNode, client: KafkaClient, rng: random.Random) -> None:
    """Follow every partition until the run is over."""
    committed = rng.random() < 0.5
    await asyncio.gather(
        *(
            _follow(node, random.Random(rng.random()), place, committed=committed)
            for place in node.topics.partitions()
        )
    )
    client.close()


async def _follow(node: KafkaNode, rng: random.Random, place: Place, *, committed: bool) -> None:
    cluster, work = node.topics, node.topics.topics_plan.work
    client = KafkaClient(cluster, f"{node.incarnation}.{place[0]}-{place[1]}", rng)
    reader = LogReader(cluster.history, client, node.incarnation, place, committed=committed)
    try:
        while not cluster.is_over:
            try:
                if rng.random() < work.list_share:
                    await reader.ask_offset(rng.choice((EARLIEST, LATEST)))
                if rng.random() < work.seek_share:
                    reader.position = rng.randint(0, max(0, reader.position))
                await reader.poll(wait_ms=work.poll_ms, bytes_max=rng.choice((1, 2_000, 60_000)))
                await asyncio.sleep(work.gap_s * rng.random())
            except (Unanswered, Refused):
                client.doubt_leader(*place)
                await client.pause()
    finally:
        client.close()
