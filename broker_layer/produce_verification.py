"""Has the coordinator confirm a transaction before its first batch is appended to a partition.

Leaves asking the coordinator, here or at another broker, to `served_log.TransactionVerifier`.

Invariants: a batch of a transaction that is open in its partition needs no confirmation; what
cannot be confirmed is not appended; what may be confirmed later is refused with a code after
which producers try again.

Source: KIP-890, "Transaction verification".
"""

from typing import Final

from broker_layer.errors import TopicError
from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.errors import BatchError
from broker_layer.kafka.produce_codec import ProduceRequest
from broker_layer.kafka.record_batch import BatchHeader, read_header
from broker_layer.served_log import PartitionLogs, TransactionVerifier

TRY_AGAIN: Final = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
)


class ProduceVerification:
    """Looks for batches that begin a transaction in their partition."""

    def __init__(self, logs: PartitionLogs, verifier: TransactionVerifier) -> None:
        self._logs = logs
        self._verifier = verifier

    def is_needed(self, request: ProduceRequest) -> bool:
        """Tell whether a request has such a batch."""
        return request.transactional_id is not None and bool(self._unconfirmed(request))

    async def verify(self, request: ProduceRequest) -> dict[tuple[str, int], TopicError]:
        """Ask for each; return why not, for those that must not be appended."""
        refusals: dict[tuple[str, int], TopicError] = {}
        for topic, partition, header in self._unconfirmed(request):
            try:
                await self._verifier.verify(
                    request.transactional_id or "",
                    header.producer_id,
                    header.producer_epoch,
                    topic,
                    partition,
                )
            except TopicError as error:
                refusals[topic, partition] = _for_producers(error)
        return refusals

    def _unconfirmed(self, request: ProduceRequest) -> list[tuple[str, int, BatchHeader]]:
        found = []
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
                    found.append((topic.name, partition, header))
        return found


def _for_producers(error: TopicError) -> TopicError:
    if error.code in TRY_AGAIN:
        text = f"the transaction could not be confirmed yet: {error.text}"
        return TopicError(ErrorCode.NOT_ENOUGH_REPLICAS, text)
    return error
