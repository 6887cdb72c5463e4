"""Has the coordinator confirm a transaction before its first batch is appended to a partition.

Leaves asking the coordinator, here or at another broker, to `transactions.verification`.

Invariants: a batch of a transaction that is open in its partition needs no confirmation; what
cannot be confirmed is not appended, nor is what a marker has overtaken; every confirmation is
released.

Source: KIP-890, "Transaction verification".
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import BatchError
from broker_layer.kafka.produce_codec import ProduceRequest
from broker_layer.kafka.record_batch import BatchHeader, read_header
from broker_layer.server.ports import Confirmation, PartitionLogs, ServedLog, TransactionVerifier

ABORTABLE_FROM: Final = 11
"""The first version of Produce whose clients know TRANSACTION_ABORTABLE."""

PartitionName = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Unconfirmed:
    """A batch that begins a transaction in its partition."""

    partition: PartitionName
    header: BatchHeader
    log: ServedLog


@dataclass(slots=True)
class Verified:
    """What the coordinators said of the partitions of one request."""

    refusals: dict[PartitionName, TopicError] = field(default_factory=dict)
    confirmations: dict[PartitionName, Confirmation] = field(default_factory=dict)
    logs: dict[PartitionName, ServedLog] = field(default_factory=dict)
    """As they were when their coordinators were asked."""

    def check(self, partition: PartitionName, log: ServedLog) -> None:
        """Raise TopicError if nothing may be appended to a partition at this moment."""
        refusal = self.refusals.get(partition)
        if refusal is not None:
            raise refusal
        if self.logs.get(partition, log) is not log:
            # Markers that another leader wrote meanwhile were not seen here.
            raise TopicError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "it was led elsewhere meanwhile")
        confirmation = self.confirmations.get(partition)
        if confirmation is not None and not confirmation.holds():
            raise TopicError(ErrorCode.INVALID_TXN_STATE, "the transaction has ended meanwhile")

    def release(self) -> None:
        """Need the confirmations no more."""
        for confirmation in self.confirmations.values():
            confirmation.release()


class ProduceVerification:
    """Looks for batches that begin a transaction in their partition."""

    def __init__(self, logs: PartitionLogs, verifier: TransactionVerifier) -> None:
        self._logs = logs
        self._verifier = verifier

    def is_needed(self, request: ProduceRequest) -> bool:
        """Tell whether a request has such a batch."""
        return request.transactional_id is not None and bool(self._unconfirmed(request))

    async def verify(self, request: ProduceRequest, version: int) -> Verified:
        """Ask for each, at the same time; the result is to be released."""
        verified = Verified()
        asked = self._unconfirmed(request)
        name, knows_abortable = request.transactional_id or "", version >= ABORTABLE_FROM
        try:
            await asyncio.gather(
                *(self._ask(verified, name, each, knows_abortable) for each in asked)
            )
        except BaseException:
            verified.release()
            raise
        return verified

    async def _ask(
        self,
        verified: Verified,
        transactional_id: str,
        asked: Unconfirmed,
        knows_abortable: bool,  # noqa: FBT001 - handed on
    ) -> None:
        partition, header = asked.partition, asked.header
        verified.logs[partition] = asked.log
        try:
            confirmation = await self._verifier.verify(
                header.producer_id,
                header.producer_epoch,
                transactional_id,
                *partition,
                knows_abortable=knows_abortable,
            )
        except TopicError as error:
            verified.refusals[partition] = error
        else:
            verified.confirmations[partition] = confirmation

    def _unconfirmed(self, request: ProduceRequest) -> list[Unconfirmed]:
        found: dict[PartitionName, Unconfirmed] = {}
        for topic in request.topics:
            for partition, records in topic.partitions:
                if records is None:
                    continue
                try:
                    header = read_header(records)
                    log = self._logs.log_of(topic.name, partition)
                except (BatchError, TopicError):
                    continue  # appending it refuses it
                is_open = log.has_open_transaction(header.producer_id, header.producer_epoch)
                if header.is_transactional and not is_open:
                    name = topic.name, partition
                    found[name] = Unconfirmed(name, header, log)
        return list(found.values())
