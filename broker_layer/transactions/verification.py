"""Verification, by a leader, that a transaction is open on a partition.

Leaves the coordinator's answer to `machine`, and reporting markers to `markers`.

A leader verifies with the coordinator that a transaction is open, and then appends a batch. If the
transaction ended in between, and its marker was already appended here, the batch would open a
transaction that is never ended. So a confirmation is void if a marker of its producer was appended
after the request.

Invariants: a leader opens a transaction only after the coordinator confirmed producer id, epoch and
partition. Otherwise it refuses with a code on which producers retry or abort, as is right. A guard
is kept only between `begin` and `release`; a void guard stays void.

Source: KIP-890, part one; topics design, "The mapping".
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Self

from broker_layer.coordinator_partitions import TRANSACTION_STATE, partition_of_key
from broker_layer.errors import TopicError, code_of
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from broker_layer.peer import PeerAddress, Peers
from broker_layer.transactions.coordinator import TransactionCoordinator
from broker_layer.transactions.leaders import NoLeader, PartitionLeaders
from broker_layer.transactions.values import Claim, TopicPartition

VERSION: Final = 4
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
_Transaction = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction


_Topic = _Transaction.AddPartitionsToTxnTopic


GuardKey = tuple[TopicPartition, int]


class Confirmation:
    """Confirmation that a transaction was open at the time of the request. Use it in a `with`
    statement.
    """

    def __init__(self, guards: "VerificationGuards", key: GuardKey) -> None:
        self._guards = guards
        self._key = key
        self._is_void = False

    def holds(self) -> bool:
        """Return whether a batch may be appended before the next `await`."""
        return not self._is_void

    def void(self) -> None:
        """Make it void, because a marker came."""
        self._is_void = True

    def release(self) -> None:
        """End the guard; the confirmation is void from then on."""
        self._is_void = True
        self._guards.remove(self._key, self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class VerificationGuards:
    """The running verifications of one broker."""

    def __init__(self) -> None:
        self._live: dict[GuardKey, dict[Confirmation, None]] = {}

    def begin(self, partition: TopicPartition, producer_id: int) -> Confirmation:
        """Begin a guard, before the request to the coordinator."""
        key = partition, producer_id
        confirmation = Confirmation(self, key)
        self._live.setdefault(key, {})[confirmation] = None
        return confirmation

    def marker_written(self, partition: TopicPartition, producer_id: int) -> None:
        """Void all earlier confirmations. Call it when a marker is appended, before the next
        `await`.
        """
        for confirmation in self._live.pop((partition, producer_id), {}):
            confirmation.void()

    def remove(self, key: GuardKey, confirmation: Confirmation) -> None:
        """Drop a guard."""
        live = self._live.get(key)
        if live is not None:
            live.pop(confirmation, None)
            if not live:
                del self._live[key]


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
        TopicPartition(topic.name, row.partition_index): code_of(row.partition_error_code)
        for result in response.results_by_transaction
        if result.transactional_id == claim.transactional_id
        for topic in result.topic_results
        for row in topic.results_by_partition
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
