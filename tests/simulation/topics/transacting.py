"""Producers that write transactions, some with offsets, and commit or abort them.

Leaves sending the batches to `producing`, and judging visible records to `history`.

A request without an answer may still take effect later. If that could end or change the next
transaction, the producer prevents it by a new epoch, as versions of Kafka's protocol without
KIP-890's second part require.

Invariants: a transaction is noted as committable before a request to commit it. The request to end
it is repeated until it is answered.
"""

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    ApiMessage,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
)
from broker_layer.kafka.versions import ApiKey
from tests.simulation.topics.broker_nodes import KafkaNode
from tests.simulation.topics.committing import PARTITION, ask_offset
from tests.simulation.topics.history import Outcome, Place, TransactionHistory
from tests.simulation.topics.kafka_client import (
    GROUP,
    TRANSACTION,
    KafkaClient,
    Refused,
    Unanswered,
)
from tests.simulation.topics.producing import RETRIED, Identity, PartitionSender, new_identity

VERSION: Final = 1
TXN_OFFSET_COMMIT_VERSION: Final = 2
CodesOf = Callable[[ApiMessage], list[int]]
"""Receives an answer, and returns the error codes in it."""
SHARED_PAUSE_S: Final = 4.0
"""Time before a fenced producer returns and fences the other one, in seconds."""
OFFSETS_SHARE: Final = 0.5
LATE_SHARE: Final = 0.5
"""Share of aborted transactions with batches that are still on their way at the abort."""
LATE_COUNT: Final = 8
LATE_S_MAX: Final = (0.005, 0.05, 1.0)


@dataclass(slots=True)
class _Producer:
    """One epoch of a transactional id."""

    node: KafkaNode
    client: KafkaClient
    rng: random.Random
    identity: Identity
    group_id: str
    senders: dict[Place, PartitionSender]
    has_doubts: bool = False

    @property
    def transactional_id(self) -> str:
        assert self.identity.transactional_id is not None
        return self.identity.transactional_id


async def transact(node: KafkaNode, client: KafkaClient, rng: random.Random) -> None:
    """Run one transaction after the other until the run is over."""
    cluster, work = node.topics, node.topics.topics_plan.work
    name = "payments" if work.shares_transactional_ids else f"payments-{node.host}"
    incarnations = 0
    while not cluster.is_over:
        incarnations += 1
        try:
            identity = await new_identity(
                client, node, name, work.transaction_timeout_ms, lambda: cluster.is_over
            )
            own = f"{node.incarnation}.{incarnations}"
            senders = {
                place: PartitionSender(node, client, place, own, identity)
                for place in cluster.partitions()
            }
            producer = _Producer(node, client, rng, identity, f"group-{name}", senders)
            await _transact_as(producer, own)
        except Refused as error:
            cluster.model.note("transactor", f"{node.host} is refused: {error}")
            if work.shares_transactional_ids:
                await asyncio.sleep(SHARED_PAUSE_S * rng.random())
            await client.pause()


async def _transact_as(producer: _Producer, own: str) -> None:
    cluster, rng = producer.node.topics, producer.rng
    work = cluster.topics_plan.work
    number = 0
    while not cluster.is_over and not producer.has_doubts:
        number += 1
        transaction = cluster.history.begin_transaction(f"{own}-{number}")
        await _transact_once(producer, transaction)
        if rng.random() < work.list_share:
            try:
                await ask_offset(producer.client, cluster, own, (producer.group_id, PARTITION))
            except (Unanswered, Refused):
                await producer.client.pause()
        await asyncio.sleep(work.gap_s * 2 * rng.random())


async def _transact_once(producer: _Producer, transaction: TransactionHistory) -> None:
    """Run one transaction. Raises Refused if the producer must start again."""
    cluster, rng = producer.node.topics, producer.rng
    work = cluster.topics_plan.work
    places = cluster.partitions()
    chosen = rng.sample(places, rng.randint(1, len(places)))
    await _add_partitions(producer, chosen)
    for _ in range(rng.randint(1, 2)):
        for place in chosen:
            producer.senders[place].add(rng, work.value_bytes, transaction)
        flushes = [producer.senders[place].flush(1) for place in chosen]
        results = await asyncio.gather(*flushes, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        await asyncio.sleep(work.gap_s * rng.random())
    offset = None
    if rng.random() < OFFSETS_SHARE:
        offset = await _commit_offset(producer, transaction)
    is_commit = rng.random() < work.commit_share
    if is_commit:
        transaction.outcome = Outcome.ASKED
    if not is_commit and rng.random() < LATE_SHARE:
        await _abort_too_early(producer, transaction, chosen)
    else:
        await _end(producer, committed=is_commit)
    transaction.outcome = Outcome.COMMITTED if is_commit else Outcome.ABORTED
    cluster.model.note("transaction", f"{transaction.name} {transaction.outcome}")
    if offset is not None and is_commit:
        cluster.offsets.note_acknowledged((producer.group_id, PARTITION), offset)


async def _abort_too_early(
    producer: _Producer, transaction: TransactionHistory, places: list[Place]
) -> None:
    """Abort a transaction while its last batches are on their way. Raises Refused.

    The markers are on their way at the same time, and wait in some logs.
    """
    producer.has_doubts = True
    rng, work = producer.rng, producer.node.topics.topics_plan.work
    batches = [producer.senders[place].add(rng, work.value_bytes, transaction) for place in places]
    await _end(producer, committed=False)
    lates = []
    for place, batch in zip(places, batches, strict=True):
        longest_s = rng.choice(LATE_S_MAX)
        sender = producer.senders[place]
        delays_s = [longest_s * rng.random() for _ in range(LATE_COUNT)]
        lates += [sender.send_late(batch, delay_s) for delay_s in delays_s]
    await asyncio.gather(*lates)


async def _add_partitions(producer: _Producer, places: list[Place]) -> None:
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    names = list(dict.fromkeys(topic for topic, _ in places))
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=producer.transactional_id,
        v3_and_below_producer_id=producer.identity.producer_id,
        v3_and_below_producer_epoch=producer.identity.epoch,
        v3_and_below_topics=[
            kind(name=name, partitions=[number for topic, number in places if topic == name])
            for name in names
        ],
    )

    def codes(response: ApiMessage) -> list[int]:
        assert isinstance(response, AddPartitionsToTxnResponse)
        topics = response.results_by_topic_v3_and_below
        return [row.partition_error_code for topic in topics for row in topic.results_by_partition]

    await _ask(producer, ApiKey.ADD_PARTITIONS_TO_TXN, request, codes)


async def _commit_offset(producer: _Producer, transaction: TransactionHistory) -> int:
    """Commit an offset in the transaction, and return it."""
    identity, client, group_id = producer.identity, producer.client, producer.group_id
    added = AddOffsetsToTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group_id,
    )

    def code_of(response: ApiMessage) -> list[int]:
        assert isinstance(response, AddOffsetsToTxnResponse)
        return [response.error_code]

    await _ask(producer, ApiKey.ADD_OFFSETS_TO_TXN, added, code_of)
    offset = producer.node.topics.offsets.ask((group_id, PARTITION), transaction)
    kind = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
    row = kind.TxnOffsetCommitRequestPartition(
        partition_index=PARTITION, committed_offset=offset, committed_metadata=""
    )
    request = TxnOffsetCommitRequest(
        transactional_id=producer.transactional_id,
        group_id=group_id,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        topics=[kind(name=producer.node.topic, partitions=[row])],
    )
    while True:
        try:
            broker = await client.coordinator_of(GROUP, group_id)
            response = await client.ask(
                broker, ApiKey.TXN_OFFSET_COMMIT, TXN_OFFSET_COMMIT_VERSION, request
            )
            assert isinstance(response, TxnOffsetCommitResponse)
            code = response.topics[0].partitions[0].error_code
            if not code:
                return offset
            if code not in RETRIED:
                raise Refused(code)
        except Unanswered:
            producer.has_doubts = True
        client.doubt_coordinator(GROUP, group_id)
        await client.pause()


async def _end(producer: _Producer, *, committed: bool) -> None:
    request = EndTxnRequest(
        transactional_id=producer.transactional_id,
        producer_id=producer.identity.producer_id,
        producer_epoch=producer.identity.epoch,
        committed=committed,
    )

    def code_of(response: ApiMessage) -> list[int]:
        assert isinstance(response, EndTxnResponse)
        return [response.error_code]

    await _ask(producer, ApiKey.END_TXN, request, code_of)


async def _ask(
    producer: _Producer, api_key: ApiKey, request: ApiMessage, codes_of: CodesOf
) -> None:
    """Repeat a request until the coordinator accepts it. Raises Refused if it never will."""
    client = producer.client
    while True:
        try:
            broker = await client.coordinator_of(TRANSACTION, producer.transactional_id)
            codes = codes_of(await client.ask(broker, api_key, VERSION, request))
            if not any(codes):
                return
            for code in codes:
                if code and code not in RETRIED and code != ErrorCode.OPERATION_NOT_ATTEMPTED:
                    raise Refused(code)
        except Unanswered:
            producer.has_doubts = True
        client.doubt_coordinator(TRANSACTION, producer.transactional_id)
        await client.pause()
