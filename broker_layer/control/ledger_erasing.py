"""Deletion of the ledgers of deleted topics, and of orphans: ledgers that no partition lists, and
that none can list later.

Leaves marking a topic as deleted to `topic_changes.py`, listed ledgers to retention, and the times
of erasing and sweeping to `controller.py`.

Source: topics design, "The mapping"; protocol rules 1.2, 10.1 and 10.6.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from dataclasses import dataclass
from typing import Final

from broker_layer.log.ledger_list import EPOCH_METADATA, partition_of
from ledger_client import LedgerClient, LedgerNotFoundError
from ledger_client.info import LedgerInfo
from metadata.errors import MetadataFormatError, NodeNotFoundError, VersionConflictError
from metadata.ids import LedgerId
from metadata.restore.restore_record import is_unaccepted
from metadata.store.interface import MetadataStore
from metadata.topics.partition import PartitionRecord
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.topic import NO_EPOCH, TopicId, TopicRecord
from metadata.topics.topic_store import TopicStore

CLAIM_ATTEMPTS_MAX: Final = 10
CLAIMS_AT_ONCE_MAX: Final = 256
LISTS_KEPT_MAX: Final = 64
"""Maximum number of lists that are cached during a sweep."""
LEDGERS_PER_PAUSE: Final = 20
_log = logging.getLogger("quire.broker.controller")


class TopicEraser:
    """Erases topics that are marked as deleted: first the record, so that the name is free, then
    the ledgers, at most `ledgers_per_s`.

    Lists and ledgers belong to a topic's id, which no other topic ever gets. So a topic of the same
    name need not wait until they are gone. All lists are claimed before the record goes, and each
    list before its ledgers are deleted, so that no leader can add to it. A list is deleted only
    after its ledgers. So what is left after a crash has a list, and its topic's id is in no record:
    `dead_topics` finds it.
    """

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
        epochs = {number: led.leader_epoch for number, led in enumerate(record.partitions)}
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
        return [topic_id for topic_id in listed if topic_id not in known]

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


@dataclass(frozen=True, slots=True)
class _Listed:
    """A partition's list. Ledgers of earlier epochs that it does not name are orphans."""

    leader_epoch: int
    ledger_ids: frozenset[LedgerId]


UNKNOWN: Final = _Listed(NO_EPOCH, frozenset())
"""A list of which nothing is known: no ledger counts as an orphan."""


class LedgerSweeper:
    """Checks all ledgers, at most `ledgers_per_s`, and deletes the orphans.

    A leader creates a ledger before it lists it. If it dies in between, no list names the ledger.
    Its own metadata still states its partition and the epoch of its leader. After a later epoch has
    been claimed, changes of the list by that leader are refused, so the ledger can never be listed.
    So a ledger is deleted only if its partition's list is gone, or was claimed under a later epoch
    and does not name the ledger. A list that cannot be read hides no other one.
    """

    def __init__(
        self,
        store: MetadataStore,
        partitions: PartitionStore,
        client: LedgerClient,
        *,
        ledgers_per_s: float,
    ) -> None:
        self._store = store
        self._partitions = partitions
        self._client = client
        self._pause_s = LEDGERS_PER_PAUSE / ledgers_per_s
        self._lists: OrderedDict[PartitionKey, _Listed | None] = OrderedDict()

    async def sweep(self) -> int:
        """Check all ledgers once; return the number of deleted ones. Raises MetadataError and
        LedgerError; it is safe to start again. Does nothing while a restore of the metadata is not
        accepted: a list may be older than the ledgers that it named.
        """
        if await is_unaccepted(self._store):
            return 0
        self._lists.clear()
        seen = deleted = 0
        async for info in self._client.list_ledgers():
            if await self._is_orphan(info):
                _log.info("deleting ledger %s, which no partition lists", info.id)
                with contextlib.suppress(LedgerNotFoundError):
                    await self._client.delete_ledger(info.id)
                deleted += 1
            seen += 1
            if seen % LEDGERS_PER_PAUSE == 0:
                await asyncio.sleep(self._pause_s)
        self._lists.clear()
        return deleted

    async def _is_orphan(self, info: LedgerInfo) -> bool:
        origin = _origin_of(info)
        if origin is None:
            return False  # it is not a ledger of a partition
        key, epoch = origin
        if key not in self._lists:
            self._lists[key] = await self._read(key)
            while len(self._lists) > LISTS_KEPT_MAX:
                self._lists.popitem(last=False)
        listed = self._lists[key]
        return listed is None or (epoch < listed.leader_epoch and info.id not in listed.ledger_ids)

    async def _read(self, key: PartitionKey) -> _Listed | None:
        """Read the present list of a partition. Return None if it is gone: a list is created before
        the first ledger, and never created again. Return UNKNOWN if it cannot be read, or loses
        ledgers meanwhile.
        """
        try:
            record, _ = await self._partitions.get(key)
        except NodeNotFoundError:
            return None
        except MetadataFormatError as error:
            _log.warning("ledgers of an unreadable partition are not deleted as orphans: %s", error)
            return UNKNOWN
        try:
            segments = await self._partitions.segments(key, record)
        except (NodeNotFoundError, MetadataFormatError) as error:
            _log.info("ledgers of a partition are searched by the next sweep: %s", error)
            return UNKNOWN
        return _Listed(record.leader_epoch, frozenset(segment.ledger_id for segment in segments))


def _origin_of(info: LedgerInfo) -> tuple[PartitionKey, int] | None:
    """Return the partition and leader epoch that a ledger was created for; None if it has none."""
    key, epoch = partition_of(info.metadata), info.metadata.get(EPOCH_METADATA)
    if key is None or not isinstance(epoch, str):
        return None
    try:
        return key, int(epoch)
    except ValueError:
        return None
