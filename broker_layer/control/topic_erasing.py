"""Erasing of a deleted topic: first its ledgers, then its partitions' lists, then its record.

Leaves marking a topic as deleted to `topic_changes.py`, and the time of erasing to `controller.py`.

Invariants: a list is claimed before its ledgers are deleted, so that no leader can add to it. A
list is deleted only after its ledgers, and the record only after all lists; so a repeated attempt
finds everything that is left. At most `ledgers_per_s` ledgers are deleted.

Source: topics design, "The mapping"; protocol rule 10.1.
"""

import asyncio
import logging
from typing import Final

from ledger_client import LedgerClient, LedgerNotFoundError
from metadata.errors import NodeNotFoundError, VersionConflictError
from metadata.topics.partition import PartitionRecord
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.topic import TopicRecord
from metadata.topics.topic_store import TopicStore

CLAIM_ATTEMPTS_MAX: Final = 10

_log = logging.getLogger("quire.broker.controller")


class TopicEraser:
    """Erases topics that are marked as deleted, one ledger at a time."""

    def __init__(
        self,
        topics: TopicStore,
        partitions: PartitionStore,
        client: LedgerClient,
        *,
        ledgers_per_s: float,
    ) -> None:
        self._topics = topics
        self._partitions = partitions
        self._client = client
        self._pause_s = 1.0 / ledgers_per_s

    async def erase(self, record: TopicRecord) -> None:
        """Erase one topic. Raises MetadataError or LedgerError; call it again then."""
        assert record.is_deleted, record.name
        count = 0
        for partition, leadership in enumerate(record.partitions):
            key = PartitionKey(record.topic_id, partition)
            count += await self._erase_partition(key, leadership.leader_epoch)
        await self._topics.finish_deletion(record.name, record.topic_id)
        _log.info("topic %s is erased with %d ledgers", record.name, count)

    async def _erase_partition(self, key: PartitionKey, leader_epoch: int) -> int:
        try:
            record = await self._claimed(key, leader_epoch)
        except NodeNotFoundError:
            return 0
        segments = await self._partitions.segments(key, record)
        for segment in segments:
            try:
                await self._client.delete_ledger(segment.ledger_id)
            except LedgerNotFoundError:
                continue
            await asyncio.sleep(self._pause_s)
        await self._partitions.delete(key)
        return len(segments)

    async def _claimed(self, key: PartitionKey, leader_epoch: int) -> PartitionRecord:
        """Claim a list with an epoch higher than any leader's. Raises NodeNotFoundError and
        MetadataError.
        """
        attempts = 0
        while True:
            record, version = await self._partitions.get(key)
            claim = record.claimed(max(record.leader_epoch, leader_epoch) + 1)
            attempts += 1
            try:
                return (await self._partitions.compare_and_set(key, claim, version))[0]
            except VersionConflictError:  # a leader changed it at the same time
                if attempts >= CLAIM_ATTEMPTS_MAX:
                    raise
