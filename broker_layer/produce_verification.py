"""Has the coordinator confirm a transaction before its first batch is appended to a partition.

Leaves asking the coordinator, here or at another broker, to `transactions.verification`.

Invariants: a batch of a transaction that is open in its partition needs no confirmation; what
cannot be confirmed is not appended, nor is what a marker has overtaken; every confirmation is
released.

Source: KIP-890, "Transaction verification".
"""

from dataclasses import dataclass, field
from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import BatchError
from broker_layer.kafka.produce_codec import ProduceRequest
from broker_layer.kafka.record_batch import BatchHeader, read_header
from broker_layer.served_log import Confirmation, PartitionLogs, TransactionVerifier

ABORTABLE_FROM: Final = 11
"""The first version of Produce whose clients know TRANSACTION_ABORTABLE."""

PartitionName = tuple[str, int]


@dataclass(slots=True)
class Verified:
    """What the coordinators said of the partitions of one request."""

    refusals: dict[PartitionName, TopicError] = field(default_factory=dict)
    confirmations: dict[PartitionName, Confirmation] = field(default_factory=dict)

    def refusal_of(self, partition: PartitionName) -> TopicError | None:
        """Return why nothing may be appended to a partition at this moment, or None."""
        refusal = self.refusals.get(partition)
        if refusal is not None:
            return refusal
        confirmation = self.confirmations.get(partition)
        if confirmation is None or confirmation.holds():
            return None
        return TopicError(ErrorCode.INVALID_TXN_STATE, "the transaction has ended meanwhile")

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
        """Ask for each; the result is to be released."""
        verified = Verified()
        try:
            for topic, partition, header in self._unconfirmed(request):
                try:
                    confirmation = await self._verifier.verify(
                        header.producer_id,
                        header.producer_epoch,
                        request.transactional_id or "",
                        topic,
                        partition,
                        knows_abortable=version >= ABORTABLE_FROM,
                    )
                except TopicError as error:
                    verified.refusals[topic, partition] = error
                else:
                    verified.confirmations[topic, partition] = confirmation
        except BaseException:
            verified.release()
            raise
        return verified

    def _unconfirmed(self, request: ProduceRequest) -> list[tuple[str, int, BatchHeader]]:
        found: dict[PartitionName, BatchHeader] = {}
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
                    found[topic.name, partition] = header
        return [(*name, header) for name, header in found.items()]
