"""A few brokers with the real code of transactions, model logs, and a network that fails."""

import asyncio
from dataclasses import dataclass
from random import Random

from typing_extensions import override  # `typing` has it from 3.12 on

from broker_layer.coordinator_partitions import CONSUMER_OFFSETS, TRANSACTION_STATE
from broker_layer.errors import TopicError
from broker_layer.handlers import RequestContext
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import decode_request, encode_response
from broker_layer.kafka.record_batch import ControlKind, build_control_batch, read_header
from broker_layer.kafka.versions import ApiKey
from broker_layer.peer import PeerAddress, PeerError, Peers
from broker_layer.transactions.coordinator import TransactionCoordinator
from broker_layer.transactions.handlers import handlers
from broker_layer.transactions.leaders import NoLeader
from broker_layer.transactions.marker_sender import MarkerSender
from broker_layer.transactions.markers import LocalMarkerWriter, MarkerHandler, PeerMarkers
from broker_layer.transactions.values import TopicPartition, TransactionConfig
from broker_layer.transactions.verification import TransactionVerifier, VerificationGuards
from tests.support.broker_layer.model_partition import ModelLog, ModelPartition
from tests.support.broker_layer.stored_state import StoredState

NOW_MS = 1_700_000_000_000
STATE_PARTITIONS = 2
CONFIG = TransactionConfig(marker_timeout_s=3.0, verification_timeout_s=2.0)


@dataclass
class Faults:
    """Probabilities of faults; all zero once the cluster heals."""

    lost: float = 0.0
    late: float = 0.0
    answer_lost: float = 0.0


class ProducerIdCounter:
    """Source of producer ids in one process."""

    def __init__(self) -> None:
        self.last = 999

    async def next(self) -> int:
        await asyncio.sleep(0)
        self.last += 1
        return self.last


class Cluster:
    """All brokers and their shared state."""

    def __init__(self, rng: Random, broker_count: int, delay_max_s: float) -> None:
        self.rng = rng
        self.faults = Faults()
        self.delay_max_s = delay_max_s
        self.producer_ids = ProducerIdCounter()
        self.partitions: dict[TopicPartition, ModelPartition] = {}
        self.states = [StoredState(rng, delay_max_s) for _ in range(STATE_PARTITIONS)]
        self.state_leaders = [-1] * STATE_PARTITIONS
        self.deleted: dict[TopicPartition, None] = {}
        self.offsets_refusal: TopicError | None = None
        self.brokers = [Broker(self, number) for number in range(broker_count)]

    def add_partition(self, topic: str, number: int) -> TopicPartition:
        name = TopicPartition(topic, number)
        leader = self.rng.randrange(len(self.brokers))
        self.partitions[name] = ModelPartition(name, leader, self.rng, self.delay_max_s)
        return name

    def leader_of(self, partition: TopicPartition) -> PeerAddress | NoLeader:
        if partition.topic == TRANSACTION_STATE:
            leader = self.state_leaders[partition.partition]
        elif partition in self.deleted:
            return NoLeader.DELETED
        elif partition not in self.partitions:
            return NoLeader.ABSENT
        else:
            leader = self.partitions[partition].leader
        return NoLeader.NOT_NOW if leader < 0 else PeerAddress(leader, f"broker-{leader}", 1)

    async def stored_count(self, topic: str) -> int:
        gone = self.deleted
        there = [
            partition
            for partition in self.partitions
            if partition.topic == topic and partition not in gone
        ]
        return max((partition.partition + 1 for partition in there), default=0)

    async def move_state(self, number: int, *, is_graceful: bool) -> None:
        """Move coordination to another broker; the old one may not notice it for a while."""
        old = self.state_leaders[number]
        choices = [broker.number for broker in self.brokers if broker.number != old] or [old]
        leader = self.rng.choice(choices)
        if old >= 0 and (is_graceful or leader == old):
            await self.brokers[old].coordinator.resign(number)
        coordinator = self.brokers[leader].coordinator
        await coordinator.resign(number)
        self.state_leaders[number] = leader
        opener = self.states[number].opener()
        await coordinator.load(number, opener)

    def now_ms(self) -> int:
        return NOW_MS + int(asyncio.get_running_loop().time() * 1000)

    async def aclose(self) -> None:
        for broker in self.brokers:
            await broker.aclose()


class ModelPeers(Peers):
    """Calls between brokers: slow, lost, or handled long after their sender stopped waiting."""

    def __init__(self, cluster: Cluster, process: str) -> None:
        super().__init__(process, cluster.rng)
        self._cluster = cluster
        self._name = process
        self._number = 1
        self._late: list[asyncio.Task[bytes]] = []

    @override
    async def call(
        self, address: PeerAddress, api_key: int, version: int, body: bytes, *, timeout_s: float
    ) -> memoryview:
        faults, rng = self._cluster.faults, self._cluster.rng
        client_id = f"{self._name}#{self._number}"
        receiver = self._cluster.brokers[address.broker_id]
        roll = rng.random()
        if roll < faults.lost + faults.late:
            self._number += 1
            if roll < faults.late:
                late = receiver.serve(api_key, version, body, client_id, rng.random() * 2)
                self._late.append(asyncio.ensure_future(late))
            await asyncio.sleep(rng.random() * 0.05)
            raise PeerError("the connection ended")
        try:
            async with asyncio.timeout(timeout_s):
                delay_s = rng.random() * self._cluster.delay_max_s
                answer = await receiver.serve(api_key, version, body, client_id, delay_s)
                await asyncio.sleep(rng.random() * self._cluster.delay_max_s * 3)
        except TimeoutError as error:
            self._number += 1
            raise PeerError("no answer") from error
        if rng.random() < faults.answer_lost:
            self._number += 1
            raise PeerError("the answer was lost")
        return memoryview(answer)

    @override
    async def aclose(self) -> None:
        for task in self._late:
            task.cancel()
        await asyncio.gather(*self._late, return_exceptions=True)


class Broker:
    """One broker, assembled as in `main`."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.number = number
        self._cluster = cluster
        self.guards = VerificationGuards()
        self.marker_peers = ModelPeers(cluster, f"broker-{number}-markers")
        self.question_peers = ModelPeers(cluster, f"broker-{number}-questions")
        self.local = LocalMarkerWriter(self.log_of, self, self.guards, cluster.now_ms)
        self.sender = MarkerSender(
            number,
            cluster,
            self.local,
            PeerMarkers(self.marker_peers, CONFIG.marker_timeout_s),
            CONFIG,
            cluster.rng,
        )
        self.coordinator = TransactionCoordinator(
            self.sender, cluster.producer_ids, lambda: STATE_PARTITIONS, CONFIG, cluster.now_ms
        )
        self.verifier = TransactionVerifier(
            number,
            self.coordinator,
            cluster,
            self.question_peers,
            lambda: STATE_PARTITIONS,
            self.guards,
            CONFIG.verification_timeout_s,
        )
        self.handlers = handlers(
            self.coordinator,
            cluster,
            MarkerHandler(self.local, CONFIG.marker_store_wait_s),
            self.group_partition_count,
        )

    def log_of(self, topic: str, number: int) -> ModelLog:
        partition = self._cluster.partitions[TopicPartition(topic, number)]
        if partition.leader != self.number:
            raise TopicError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another broker leads")
        return partition.log

    async def group_partition_count(self) -> int:
        """Create the topic of offsets, as `TopicChanges.ensured_partition_count` does."""
        cluster = self._cluster
        if cluster.offsets_refusal is not None:
            raise cluster.offsets_refusal
        if TopicPartition(CONSUMER_OFFSETS, 0) not in cluster.partitions:
            cluster.add_partition(CONSUMER_OFFSETS, 0)
        return 1

    async def write_markers(
        self,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        committed: bool,
    ) -> None:
        kind = ControlKind.COMMIT if committed else ControlKind.ABORT
        batch = build_control_batch(kind, producer_id, producer_epoch, coordinator_epoch, NOW_MS)
        log = self.log_of(CONSUMER_OFFSETS, partition)
        await log.append(read_header(batch), batch, coordinator_epoch=coordinator_epoch)

    async def serve(
        self, api_key: int, version: int, body: bytes, client_id: str, delay_s: float
    ) -> bytes:
        """Answer an encoded request as the dispatcher does."""
        await asyncio.sleep(delay_s)
        request = decode_request(ApiKey(api_key), version, body)
        context = RequestContext(version, client_id, "host", "BROKERS", 1)
        answer = await self.handlers[api_key](request, context)
        assert not isinstance(answer, bytes)
        return bytes(encode_response(answer, version))

    async def aclose(self) -> None:
        await self.coordinator.aclose()
        await self.sender.aclose()
        await self.marker_peers.aclose()
        await self.question_peers.aclose()
