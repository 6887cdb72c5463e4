"""Partitions whose ledgers repair copies or moves, for ListPartitionReassignments.

Leaves the jobs to the processes of repair.

Invariants: a ledger belongs to the partition that its own metadata names. The ledgers of all jobs
are read at most once in KEPT_S, at most READS_AT_ONCE at a time; there are at most
`metadata.repair.job_store.JOBS_MAX` jobs.

Source: protocol rules 9.1 and 9.3; KIP-455.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from broker_layer.control.bookie_states import BookieStates
from broker_layer.log.ledger_list import partition_of
from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.repair.jobs import job_name_of
from metadata.store.child_names import ChildNames
from metadata.topics.partition_store import PartitionKey
from metadata.topics.replica_numbers import ReplicaNumbers

KEPT_S: Final = 5.0
"""Time for which the answer is kept, in seconds."""
READS_AT_ONCE: Final = 32


@dataclass(frozen=True, slots=True)
class MovingBookies:
    """Numbers of the bookies between which the ledgers of one partition are moved."""

    incoming: tuple[int, ...]
    """Those that copies are made on now."""
    leaving: tuple[int, ...]
    """Those that the copies are moved off."""


class MovingLedgers:
    """The partitions with ledgers that jobs of repair name."""

    def __init__(
        self,
        ledgers: LedgerStore,
        jobs: ChildNames,
        states: BookieStates,
        numbers: ReplicaNumbers,
        now: Callable[[], float],
    ) -> None:
        self._ledgers = ledgers
        self._jobs = jobs
        self._states = states
        self._numbers = numbers
        self._now = now
        self._reading = asyncio.Lock()
        self._kept: tuple[float, Mapping[PartitionKey, MovingBookies]] | None = None

    async def by_partition(self) -> Mapping[PartitionKey, MovingBookies]:
        """Return the partitions with such ledgers. Raises MetadataError."""
        async with self._reading:
            if self._kept is None or self._now() - self._kept[0] > KEPT_S:
                self._kept = self._now(), await self._read()
            return self._kept[1]

    async def _read(self) -> Mapping[PartitionKey, MovingBookies]:
        names = filter(None, map(job_name_of, self._jobs.names))
        ledger_ids = list(dict.fromkeys(name.ledger_id for name in names))
        bookies: dict[PartitionKey, tuple[dict[BookieId, None], dict[BookieId, None]]] = {}
        for start in range(0, len(ledger_ids), READS_AT_ONCE):
            some = ledger_ids[start : start + READS_AT_ONCE]
            for ledger in await asyncio.gather(*map(self._ledger, some)):
                key = None if ledger is None else partition_of(ledger.custom)
                if ledger is None or key is None:
                    continue
                incoming, leaving = bookies.setdefault(key, ({}, {}))
                for fragment in ledger.fragments:
                    incoming |= dict.fromkeys(fragment.incoming)
                    leaving |= dict.fromkeys(filter(self._states.is_leaving, fragment.ensemble))
        return {
            key: MovingBookies(
                await self._numbers.numbers_of(incoming), await self._numbers.numbers_of(leaving)
            )
            for key, (incoming, leaving) in bookies.items()
        }

    async def _ledger(self, ledger_id: LedgerId) -> LedgerMetadata | None:
        try:
            ledger, _ = await self._ledgers.get(ledger_id)
        except (NodeNotFoundError, MetadataFormatError):
            return None
        return ledger
