"""Environment of a marker sender: changing leaders, and brokers with scripted answers."""

import asyncio
from collections.abc import Awaitable, Sequence
from random import Random

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.peer import PeerAddress, PeerError
from broker_layer.transactions.leaders import NoLeader
from broker_layer.transactions.marker_sender import MarkerSender
from broker_layer.transactions.values import Marker, TopicPartition, TransactionConfig
from metadata.errors import StoreUnavailableError

OWN_ID = 1
Written = tuple[int, TopicPartition, Marker]


class MarkerWorld:
    """Leaders, and all markers that they received, in order."""

    def __init__(self) -> None:
        self.leaders: dict[TopicPartition, int | NoLeader] = {}
        self.records: dict[str, int] | None = {}
        """Numbers of partitions in the records of topics; None if they cannot be read."""
        self.reads: list[str] = []
        self.codes: dict[TopicPartition, list[ErrorCode | None]] = {}
        """First answers of a partition; None ends the connection."""
        self.written: list[Written] = []
        self.requests: list[tuple[int, int]] = []
        """Broker and number of markers of each request."""
        self.answer_delay_s = 0.01
        self.uncommitted: dict[TopicPartition, asyncio.Event] = {}
        """Partitions here that commit nothing before their event."""
        self.config = TransactionConfig(markers_per_request_max=10)
        self.sender = MarkerSender(OWN_ID, self, self, _Remote(self), self.config, Random(3))

    def leader_of(self, partition: TopicPartition) -> PeerAddress | NoLeader:
        leader = self.leaders.get(partition, NoLeader.ABSENT)
        return leader if isinstance(leader, NoLeader) else PeerAddress(leader, "host", leader)

    async def stored_count(self, topic: str) -> int:
        self.reads.append(topic)
        if self.records is None:
            raise StoreUnavailableError("memory", "a test")
        return self.records.get(topic, 0)

    def write(self, partition: TopicPartition, marker: Marker) -> Awaitable[ErrorCode]:
        self.written.append((OWN_ID, partition, marker))
        return self._answer(partition)

    def next_code(self, partition: TopicPartition) -> ErrorCode | None:
        codes = self.codes.get(partition)
        return codes.pop(0) if codes else ErrorCode.NONE

    async def _answer(self, partition: TopicPartition) -> ErrorCode:
        await asyncio.sleep(self.answer_delay_s)
        if partition in self.uncommitted:
            await self.uncommitted[partition].wait()
        code = self.next_code(partition)
        return ErrorCode.UNKNOWN_SERVER_ERROR if code is None else code


class _Remote:
    def __init__(self, world: MarkerWorld) -> None:
        self._world = world

    async def write(
        self, address: PeerAddress, markers: Sequence[tuple[TopicPartition, Marker]]
    ) -> list[ErrorCode]:
        world = self._world
        world.requests.append((address.broker_id, len(markers)))
        world.written += [(address.broker_id, *marker) for marker in markers]
        await asyncio.sleep(world.answer_delay_s)
        codes = [world.next_code(partition) for partition, _ in markers]
        known = [code for code in codes if code is not None]
        if len(known) < len(codes):
            raise PeerError("the connection ended")
        return known
