"""Verification, by a leader, that a transaction is open on a partition.

Leaves the coordinator's answer to `machine`, and markers that come at the same time to
`verification_guards`.

Invariants: a leader opens a transaction only after the coordinator confirmed producer id, epoch and
partition. Otherwise it refuses with a code on which producers retry or abort, as is right.

Source: KIP-890, part one; topics design, "The mapping".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from broker_layer.coordinator_partitions import TRANSACTION_STATE
from broker_layer.errors import TopicError
from broker_layer.java_hash import partition_of_key
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from broker_layer.peer import PeerAddress, Peers
from broker_layer.transactions.coordinator import TransactionCoordinator
from broker_layer.transactions.marker_messages import code_of
from broker_layer.transactions.ports import NoLeader, PartitionLeaders
from broker_layer.transactions.values import Claim, TopicPartition
from broker_layer.transactions.verification_guards import Confirmation, VerificationGuards

VERSION: Final = 4

_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
_Topic = _Transaction.AddPartitionsToTxnTopic

# For answers that the coordinator will know soon: all producers, even old ones, retry on this code.
_PRODUCE_AGAIN: Final = ErrorCode.NOT_ENOUGH_REPLICAS
_UNDECIDED: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


@dataclass(eq=False, repr=False)
class TransactionVerifier:
    """Verifies transactions for the leaders and group coordinators of one broker."""

    _own_id: int
    _coordinator: TransactionCoordinator
    _leaders: PartitionLeaders
    _peers: Peers
    _partition_count: Callable[[], int]
    _guards: VerificationGuards
    _timeout_s: float

    async def verify(
        self, claim: Claim, partition: TopicPartition, *, knows_abortable: bool = False
    ) -> Confirmation:
        """Return a confirmation; batches may be appended while it is valid.

        Raises TopicError with a code for Produce: NOT_ENOUGH_REPLICAS if it is not known yet;
        INVALID_TXN_STATE if the partition is not in the transaction (TRANSACTION_ABORTABLE for
        clients that know it, from Produce version 11 on); INVALID_PRODUCER_EPOCH;
        INVALID_PRODUCER_ID_MAPPING.
        """
        try:
            return await self.confirm(claim, partition, knows_abortable=knows_abortable)
        except TopicError as error:
            if error.code in _UNDECIDED:
                raise TopicError(_PRODUCE_AGAIN, error.text) from error
            raise

    async def check_offsets(
        self,
        producer_id: int,
        producer_epoch: int,
        transactional_id: str,
        topic: str,
        partition: int,
    ) -> None:
        """Return if a group may store offsets of the transaction, before the next `await`.

        Raises TopicError with a code for TxnOffsetCommit: COORDINATOR_LOAD_IN_PROGRESS if it is not
        known yet, else as `verify`.
        """
        try:
            claim = Claim(transactional_id, producer_id, producer_epoch)
            with await self.confirm(claim, TopicPartition(topic, partition)) as confirmation:
                if not confirmation.holds():
                    text = "the transaction has ended: begin another one"
                    raise TopicError(ErrorCode.INVALID_TXN_STATE, text)
        except TopicError as error:
            if error.code in _UNDECIDED:
                raise TopicError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.text) from error
            raise

    async def confirm(
        self, claim: Claim, partition: TopicPartition, *, knows_abortable: bool = False
    ) -> Confirmation:
        """Like `verify`, but raise the untranslated error, such as NOT_COORDINATOR, if the answer
        is not known yet.
        """
        confirmation = self._guards.begin(partition, claim.producer_id)
        try:
            code = await self._ask(claim, partition)
            if code is not ErrorCode.NONE:
                raise _refusal(code, claim, partition, knows_abortable=knows_abortable)
        except BaseException:
            confirmation.release()
            raise
        return confirmation

    async def _ask(self, claim: Claim, partition: TopicPartition) -> ErrorCode:
        count = self._partition_count()
        if count == 0:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        state = TopicPartition(TRANSACTION_STATE, partition_of_key(claim.transactional_id, count))
        leader = self._leaders.leader_of(state)
        if isinstance(leader, NoLeader):
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        if leader.broker_id == self._own_id:
            return self._coordinator.verify(claim, [partition])[partition]
        return await self._ask_peer(leader, claim, partition)

    async def _ask_peer(
        self, leader: PeerAddress, claim: Claim, partition: TopicPartition
    ) -> ErrorCode:
        request = AddPartitionsToTxnRequest(
            transactions=[
                _Transaction(
                    transactional_id=claim.transactional_id,
                    producer_id=claim.producer_id,
                    producer_epoch=claim.epoch,
                    verify_only=True,
                    topics=[_Topic(name=partition.topic, partitions=[partition.partition])],
                )
            ]
        )
        response = await self._peers.ask(
            leader, request, AddPartitionsToTxnResponse, VERSION, self._timeout_s
        )
        if response.error_code:
            return code_of(response.error_code)
        return _code_in(response, claim, partition)


def _code_in(
    response: AddPartitionsToTxnResponse, claim: Claim, partition: TopicPartition
) -> ErrorCode:
    codes = {
        TopicPartition(topic.name, each.partition_index): code_of(each.partition_error_code)
        for result in response.results_by_transaction
        if result.transactional_id == claim.transactional_id
        for topic in result.topic_results
        for each in topic.results_by_partition
    }
    return codes.get(partition, ErrorCode.UNKNOWN_SERVER_ERROR)


def _refusal(
    code: ErrorCode, claim: Claim, partition: TopicPartition, *, knows_abortable: bool
) -> TopicError:
    if code is ErrorCode.PRODUCER_FENCED:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    elif code is ErrorCode.TRANSACTION_ABORTABLE and not knows_abortable:
        code = ErrorCode.INVALID_TXN_STATE
    return TopicError(
        code,
        f"{claim.transactional_id!r} with producer {claim.producer_id} epoch {claim.epoch} has no "
        f"transaction on {partition.topic}-{partition.partition}: {code.name}",
    )
