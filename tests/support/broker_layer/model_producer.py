"""A producer that runs transactions in sequence and retries where that is allowed."""

import asyncio
import contextlib
from dataclasses import dataclass, field

from broker_layer.coordinator_partitions import partition_of_key
from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.transactions.values import Claim, ProducerIdentity, TopicPartition
from tests.support.broker_layer.model_cluster import STATE_PARTITIONS, Broker, Cluster
from tests.support.broker_layer.model_partition import Tag

AGAIN = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


@dataclass
class Ledger:
    """The producers' shared record of their transactions."""

    ended: dict[Tag, bool] = field(default_factory=dict)
    """The decision, if the producer received it."""
    asked_to_commit: dict[Tag, None] = field(default_factory=dict)
    stragglers: list[asyncio.Task[None]] = field(default_factory=list)


class ModelProducer:
    """One incarnation of one transactional id."""

    def __init__(
        self, cluster: Cluster, ledger: Ledger, transactional_id: str, incarnation: int
    ) -> None:
        self.cluster = cluster
        self.ledger = ledger
        self.transactional_id = transactional_id
        self.incarnation = incarnation
        self.identity: ProducerIdentity | None = None

    async def run(self, transaction_count: int) -> None:
        """Run transactions until all are done or the producer is fenced."""
        for number in range(transaction_count):
            try:
                if self.identity is None:
                    await self._initialise()
                await self._transact((self.transactional_id, self.incarnation, number))
            except TopicError as error:
                if error.code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
                    return
                self.identity = None

    def _coordinator(self) -> Broker:
        number = partition_of_key(self.transactional_id, STATE_PARTITIONS)
        leader = self.cluster.state_leaders[number]
        if leader < 0:
            raise TopicError(ErrorCode.NOT_COORDINATOR, "none")
        return self.cluster.brokers[leader]

    async def _initialise(self) -> None:
        while True:
            try:
                await self._travel()
                self.identity = await self._coordinator().coordinator.init_producer_id(
                    self.transactional_id, 2_000, None
                )
                return
            except TopicError as error:
                await self._pause_or_raise(error)

    async def _transact(self, tag: Tag) -> None:
        rng = self.cluster.rng
        assert self.identity is not None
        claim = Claim(self.transactional_id, *self.identity)
        names = sorted(self.cluster.partitions)
        chosen = rng.sample(names, rng.randint(1, len(names)))
        for partition in chosen:
            await self._add(claim, partition)
            if rng.random() < 0.1:
                await self._give_up(claim, partition, tag)
                return
            for _ in range(rng.randint(1, 2)):
                await self._produce(claim, partition, tag)
        if rng.random() < 0.1:
            await asyncio.sleep(3.0)  # longer than the timeout
        committed = rng.random() < 0.6
        if committed:
            self.ledger.asked_to_commit[tag] = None
        await self._end(claim, tag, committed=committed)

    async def _give_up(self, claim: Claim, partition: TopicPartition, tag: Tag) -> None:
        """Abandon a batch that is being sent, abort, and continue as another incarnation."""
        straggler = asyncio.ensure_future(self._straggle(claim, partition, tag))
        self.ledger.stragglers.append(straggler)
        self.identity = None
        await self._end(claim, tag, committed=False)

    async def _straggle(self, claim: Claim, partition: TopicPartition, tag: Tag) -> None:
        await asyncio.sleep(self.cluster.rng.random() * self.cluster.delay_max_s * 5)
        with contextlib.suppress(TopicError):
            await self._append(claim, partition, tag)

    async def _add(self, claim: Claim, partition: TopicPartition) -> None:
        while True:
            try:
                await self._travel()
                await self._coordinator().coordinator.add_partitions(claim, [partition])
                return
            except TopicError as error:
                await self._pause_or_raise(error)

    async def _produce(self, claim: Claim, partition: TopicPartition, tag: Tag) -> None:
        while True:
            try:
                await self._travel()
                await self._append(claim, partition, tag)
                return
            except TopicError as error:
                await self._pause_or_raise(error)

    async def _append(self, claim: Claim, partition: TopicPartition, tag: Tag) -> None:
        broker = self.cluster.brokers[self.cluster.partitions[partition].leader]
        log = broker.log_of(*partition)
        if log.has_open_transaction(claim.producer_id, claim.epoch):
            answer = log.append_batch(claim.producer_id, claim.epoch, tag)
        else:
            with await broker.verifier.verify(claim, partition) as confirmation:
                if not confirmation.holds():
                    raise TopicError(ErrorCode.INVALID_TXN_STATE, "a marker came")
                answer = log.append_batch(claim.producer_id, claim.epoch, tag)
        await answer

    async def _end(self, claim: Claim, tag: Tag, *, committed: bool) -> None:
        while True:
            try:
                await self._travel()
                await self._coordinator().coordinator.end(claim, committed=committed)
                self.ledger.ended[tag] = committed
                await self._travel()
                return
            except TopicError as error:
                await self._pause_or_raise(error)

    async def _travel(self) -> None:
        await asyncio.sleep(self.cluster.rng.random() * self.cluster.delay_max_s)

    async def _pause_or_raise(self, error: TopicError) -> None:
        if error.code not in AGAIN:
            raise error
        await asyncio.sleep(self.cluster.rng.random() * 0.05)
