"""Verification of a transaction before its first batch is appended to a partition.

Leaves the query to the coordinator, here or at another broker, to `transactions.verification`.

Whether a batch needs a confirmation is asked here before a wait, and again by the log when it
admits the batch. Markers may come in between.

Invariants: a batch of a transaction that is open in its partition needs no confirmation; a batch
without a confirmation is not appended, nor one whose transaction a marker has ended; every
confirmation is released, that of an append when the append has ended.

Source: KIP-890, "Transaction verification".
"""

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import RecordBatchError
from broker_layer.kafka.frames import Buffer
from broker_layer.kafka.produce_codec import ProduceRequest
from broker_layer.kafka.record_batch import RecordBatchHeader, read_header
from broker_layer.server.ports import PartitionLog, PartitionLogs, ProduceVerifier
from broker_layer.transactions.values import Claim, TopicPartition
from broker_layer.transactions.verification import Confirmation
from metadata.cancelling import cancel_and_wait

if TYPE_CHECKING:
    from broker_layer.log.pending_batches import Appended


VERIFICATIONS_AT_ONCE: Final = 100
"""Maximum number of concurrent questions for one Produce. All of them go to one broker, to which
there are a thousand calls at most, for all clients."""
ABORTABLE_FROM: Final = 11
"""The first version of Produce whose clients accept TRANSACTION_ABORTABLE."""


@dataclass(frozen=True, slots=True)
class UnconfirmedBatch:
    """A batch that begins a transaction in its partition."""

    partition: TopicPartition
    header: RecordBatchHeader
    log: PartitionLog


@dataclass(slots=True)
class Verified:
    """Answers of the coordinators for the partitions of one request."""

    refusals: dict[TopicPartition, TopicError] = field(default_factory=dict)
    confirmations: dict[TopicPartition, Confirmation] = field(default_factory=dict)
    logs: dict[TopicPartition, PartitionLog] = field(default_factory=dict)
    """The logs at the time of the queries."""
    undecided: TopicError | None = None
    """Why a coordinator gave no decision. All partitions of a request have one coordinator, which
    is not asked any more then: each question could take until its timeout."""

    def append(
        self,
        partition: TopicPartition,
        log: PartitionLog,
        header: RecordBatchHeader,
        batch: Buffer,
        *,
        waits_for_one: bool,
    ) -> "asyncio.Future[Appended]":
        """Append a batch of a transaction; its confirmation is held until the append has ended.

        Raises TopicError.
        """
        try:
            self._check(partition, log)
        except TopicError as error:
            log.note_refused(header, error.code)
            raise
        confirmation = self.confirmations.get(partition)
        if confirmation is None:
            return log.append(header, batch, waits_for_one=waits_for_one)
        may_open = confirmation.holds
        appended = log.append(header, batch, may_open=may_open, waits_for_one=waits_for_one)
        del self.confirmations[partition]
        appended.add_done_callback(lambda _: confirmation.release())
        return appended

    def _check(self, partition: TopicPartition, log: PartitionLog) -> None:
        """Raise TopicError if nothing may be appended to a partition now."""
        refusal = self.refusals.get(partition)
        if refusal is not None:
            raise refusal
        if self.logs.get(partition, log) is not log:
            # Another leader may have written markers that this broker did not see.
            text = "another broker led the partition while its transaction was checked: retry"
            raise TopicError(ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
        confirmation = self.confirmations.get(partition)
        if confirmation is not None and not confirmation.holds():
            text = "the transaction ended while it was checked: begin another one"
            raise TopicError(ErrorCode.INVALID_TXN_STATE, text)

    def release(self) -> None:
        """Release all confirmations that are left."""
        for confirmation in self.confirmations.values():
            confirmation.release()


class ProduceVerification:
    """Verifier of batches that begin a transaction in their partition."""

    def __init__(self, logs: PartitionLogs, verifier: ProduceVerifier) -> None:
        self._logs = logs
        self._verifier = verifier

    def is_needed(self, request: ProduceRequest) -> bool:
        """Return whether a request has such a batch."""
        return request.transactional_id is not None and bool(self._unconfirmed(request))

    async def verify(self, request: ProduceRequest, version: int) -> Verified:
        """Verify all such batches, some at a time; the caller must release the result."""
        verified = Verified()
        asked = self._unconfirmed(request)
        name, knows_abortable = request.transactional_id or "", version >= ABORTABLE_FROM
        left = iter(asked)

        async def ask() -> None:
            for batch in left:
                await self._ask(verified, name, batch, knows_abortable)

        asking = [asyncio.ensure_future(ask()) for _ in asked[:VERIFICATIONS_AT_ONCE]]
        try:
            await asyncio.gather(*asking)
        except BaseException:
            await cancel_and_wait(*asking)
            verified.release()
            raise
        return verified

    async def _ask(
        self,
        verified: Verified,
        transactional_id: str,
        asked: UnconfirmedBatch,
        knows_abortable: bool,  # noqa: FBT001 - handed on
    ) -> None:
        partition, header = asked.partition, asked.header
        verified.logs[partition] = asked.log
        if verified.undecided is not None:
            verified.refusals[partition] = verified.undecided
            return
        try:
            confirmation = await self._verifier.verify(
                Claim(transactional_id, header.producer_id, header.producer_epoch),
                partition,
                knows_abortable=knows_abortable,
            )
        except TopicError as error:
            verified.refusals[partition] = error
            if error.code is ErrorCode.NOT_ENOUGH_REPLICAS:
                verified.undecided = error
        else:
            verified.confirmations[partition] = confirmation

    def _unconfirmed(self, request: ProduceRequest) -> list[UnconfirmedBatch]:
        unconfirmed: dict[TopicPartition, UnconfirmedBatch] = {}
        for topic in request.topics:
            for partition, records in topic.partitions:
                if records is None:
                    continue
                try:
                    header = read_header(records)
                    log = self._logs.log_of(topic.name, partition)
                except (RecordBatchError, TopicError):
                    continue  # the append refuses it
                is_open = log.has_open_transaction(header.producer_id, header.producer_epoch)
                if header.is_transactional and not is_open:
                    name = TopicPartition(topic.name, partition)
                    unconfirmed[name] = UnconfirmedBatch(name, header, log)
        return list(unconfirmed.values())
