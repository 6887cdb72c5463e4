"""Asks, for a group's coordinator, whether a transaction may commit offsets there.

Leaves asking to `transactions.verification`, and what it means to `groups.offset_commits`.
"""

from broker_layer.transactions.values import Claim, TopicPartition
from broker_layer.transactions.verification import TransactionVerifier


class GroupVerification:
    """What TxnOffsetCommit asks before it keeps offsets."""

    def __init__(self, verifier: TransactionVerifier) -> None:
        self._verifier = verifier

    async def verify(
        self,
        producer_id: int,
        producer_epoch: int,
        transactional_id: str,
        topic: str,
        partition: int,
    ) -> None:
        """Return if the partition is in the producer's open transaction: offsets may be kept
        without waiting for anything first. Raises TopicError.
        """
        claim = Claim(transactional_id, producer_id, producer_epoch)
        await self._verifier.check_offsets(claim, TopicPartition(topic, partition))
