"""Deletion of orphans: ledgers that no partition lists, and that none can list later.

Leaves listed ledgers to retention and to `topic_erasing`, and the time of a sweep to `controller`.

A leader creates a ledger before it lists it. If it dies in between, no list names the ledger. Its
own metadata still states its partition and the epoch of its leader. After a later epoch has been
claimed, changes of the list by that leader are refused, so the ledger can never be listed.

Invariants: a ledger is deleted only if its partition's list is gone, or was claimed under a later
epoch and does not name the ledger. A list that cannot be read hides no other one. A sweep checks at
most `ledgers_per_s`.

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
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import LedgerId
from metadata.restore.restore_record import is_unaccepted
from metadata.store.interface import MetadataStore
from metadata.topics.partition_store import PartitionKey, PartitionStore
from metadata.topics.topic import NO_EPOCH

LISTS_KEPT_MAX: Final = 64
"""Maximum number of lists that are cached during a sweep."""
LEDGERS_PER_PAUSE: Final = 20

_log = logging.getLogger("quire.broker.controller")


@dataclass(frozen=True, slots=True)
class _Listed:
    """A partition's list. Ledgers of earlier epochs that it does not name are orphans."""

    leader_epoch: int
    ledger_ids: frozenset[LedgerId]


UNKNOWN: Final = _Listed(NO_EPOCH, frozenset())
"""A list of which nothing is known: no ledger counts as an orphan."""


class LedgerSweeper:
    """Checks all ledgers at a limited rate and deletes the orphans."""

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
            _log.warning("ledgers of a partition are not searched for unlisted ones: %s", error)
            return UNKNOWN
        try:
            segments = await self._partitions.segments(key, record)
        except (NodeNotFoundError, MetadataFormatError) as error:
            _log.info("ledgers of a partition are searched by the next sweep: %s", error)
            return UNKNOWN
        return _Listed(record.leader_epoch, frozenset(each.ledger_id for each in segments))


def _origin_of(info: LedgerInfo) -> tuple[PartitionKey, int] | None:
    """Return the partition and leader epoch that a ledger was created for; None if it has none."""
    key, epoch = partition_of(info.metadata), info.metadata.get(EPOCH_METADATA)
    if key is None or not isinstance(epoch, str):
        return None
    try:
        return key, int(epoch)
    except ValueError:
        return None
