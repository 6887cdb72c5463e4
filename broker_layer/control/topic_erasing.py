"""Erasing of a deleted topic: first its record, so that its name is free, then its ledgers.

Leaves marking a topic as deleted to `topic_changes.py`, and the time of erasing to `controller.py`.

Lists and ledgers belong to a topic's id, which no other topic ever gets. So a topic of the same
name need not wait until they are gone.

Invariants: all lists are claimed before the record goes, and each list before its ledgers are
deleted, so that no leader can add to it. A list is deleted only after its ledgers. So what is left
after a crash has a list, and its topic's id is in no record: `dead_topics` finds it. At most
`ledgers_per_s` ledgers are deleted.

Source: topics design, "The mapping"; protocol rule 10.1.
"""

import asyncio
import logging
from typing import Final

from ledger_client import LedgerClient, LedgerNotFoundError
from metadata.errors import MetadataFormatError, NodeNotFoundError, VersionConflictError
from metadata.topics.partition import PartitionRecord
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.topic import NO_EPOCH, TopicId, TopicRecord
from metadata.topics.topic_store import TopicStore

CLAIM_ATTEMPTS_MAX: Final = 10
CLAIMS_AT_ONCE_MAX: Final = 256

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

    async def release_name(self, record: TopicRecord) -> None:
        """Claim all lists of a topic, then free its name. Raises MetadataError; call it again then.
        Call `delete_ledgers` next.
        """
        assert record.is_deleted, record.name
        epochs = {number: each.leader_epoch for number, each in enumerate(record.partitions)}
        listed = await self._partitions.partitions_of(record.topic_id)
        for start in range(0, len(listed), CLAIMS_AT_ONCE_MAX):
            claims = [
                self._claimed(
                    PartitionKey(record.topic_id, partition), epochs.get(partition, NO_EPOCH)
                )
                for partition in listed[start : start + CLAIMS_AT_ONCE_MAX]
            ]
            for result in await asyncio.gather(*claims, return_exceptions=True):
                if isinstance(result, BaseException) and not isinstance(result, NodeNotFoundError):
                    raise result
        await self._topics.finish_deletion(record.name, record.topic_id)
        _log.info("the name of topic %s is free", record.name)

    async def dead_topics(self) -> list[TopicId]:
        """Return the ids of topics that have lists but no record. Raises MetadataError.

        A leader creates a list only after the topic's record was stored. The lists are read first,
        so a topic that is created meanwhile is not among them.
        """
        listed = await self._partitions.topic_ids()
        known = await self._topics.topic_ids() if listed else set()
        return [each for each in listed if each not in known]

    async def delete_ledgers(self, topic_id: TopicId) -> None:
        """Delete the ledgers and lists of a topic without a record. Raises MetadataError or
        LedgerError; call it again then. A list that cannot be read keeps no other one.
        """
        count = 0
        unreadable: MetadataFormatError | None = None
        for partition in await self._partitions.partitions_of(topic_id):
            try:
                count += await self._erase_partition(PartitionKey(topic_id, partition))
            except MetadataFormatError as error:
                unreadable = error
        if unreadable is not None:
            raise unreadable
        _log.info("%d ledgers of topic id %s are deleted", count, topic_id.hex())

    async def _erase_partition(self, key: PartitionKey) -> int:
        try:
            record = await self._claimed(key, NO_EPOCH)
        except NodeNotFoundError:
            return 0
        try:
            segments = await self._partitions.segments(key, record)
        except NodeNotFoundError:
            # No leader removes a chunk after the claim: a deletion of the list was cut off, and it
            # began after all ledgers were deleted.
            segments = ()
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
        MetadataError. A fresh read has just shown that there is a list, so only a conflict makes
        another one necessary.
        """
        attempts = 0
        while True:
            record, version = await self._partitions.get(key, fresh=attempts > 0)
            claim = record.claimed(max(record.leader_epoch, leader_epoch) + 1)
            attempts += 1
            try:
                return (await self._partitions.compare_and_set(key, claim, version))[0]
            except VersionConflictError:  # a leader changed it at the same time
                if attempts >= CLAIM_ATTEMPTS_MAX:
                    raise
