"""Ledgers of the partitions that a broker leads that have too few copies.

Leaves which bookies' copies do not count to `bookie_states.py`, and making copies to the processes
of repair.

Invariants: while every bookie is well and repair has no job, nothing new is read. Otherwise the
metadata of each ended ledger is read once and kept, at most READS_PER_LOOK in one look; a ledger
that repair may have changed is read again after REREAD_S, until it is whole. What is found is only
shown: no decision depends on it. A ledger of a topic has all its entries on each member, because
its ensemble is its write quorum. A fragment without entries lacks nothing.

Source: protocol rules 9.1, 9.3, 9.9 and 11.2; docs/topics.md, "Under-replicated partitions".
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from broker_layer.control.bookie_states import BookieStates
from broker_layer.log.topic_log import TopicLog
from ledger_client.info import LedgerInfo
from ledger_client.tasks import BackgroundTasks
from metadata.errors import MetadataError, MetadataFormatError, NodeNotFoundError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.copies import FragmentCopies, copies_of
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.repair.jobs import MOVING_URGENCY, JobName, job_name_of
from metadata.store.child_names import ChildNames
from metadata.topics.partition_store import PartitionKey
from metadata.topics.replica_numbers import MISSING_REPLICA, ReplicaNumbers

LOOK_S: Final = 2.0
"""Pause between two looks at all ledgers."""
READS_PER_LOOK: Final = 100
"""Maximum number of ledgers whose metadata one look reads."""
READS_AT_ONCE: Final = 16
REREAD_S: Final = 30.0
"""Time after which a ledger that repair may change is read again."""
LOGS_PER_STEP: Final = 100
"""Number of logs that are checked before the event loop may do other work."""
GONE_SHOWN_MAX: Final = 8
"""Maximum number of bookies that are shown as replicas only because old ledgers name them."""
TOO_FEW: Final = "it has fewer members than it wants"
NAMED_BY_REPAIR: Final = "repair has a job for it"
_log = logging.getLogger("quire.broker.partitions")


@dataclass(frozen=True, slots=True)
class LedgerCopies:
    """Copies of the entries of a closed ledger."""

    fragments: tuple[FragmentCopies, ...]
    size_bytes: int

    @property
    def members(self) -> tuple[BookieId, ...]:
        """All bookies that it names."""
        return tuple(dict.fromkeys(bookie for one in self.fragments for bookie in one.ensemble))


@dataclass(frozen=True, slots=True)
class LedgerShortage:
    """What one ledger lacks."""

    ledger_id: LedgerId
    why: str
    bookies: tuple[BookieId, ...] = ()
    """Bookies that it names and whose copies do not count."""
    entry_count: int = 0
    """Entries with fewer copies than they are to have; 0 if only a job of repair names it."""
    size_bytes: int = 0
    """Bytes of these entries, estimated from the length of the ledger."""


def ledger_copies(ledger: LedgerMetadata) -> LedgerCopies | None:
    """Return the copies of a ledger; None unless it is closed."""
    if ledger.last_entry_id is None or ledger.length is None:
        return None
    return LedgerCopies(tuple(copies_of(ledger)), ledger.length)


def shortage_of(
    ledger_id: LedgerId, copies: LedgerCopies, why_short: Callable[[BookieId], str]
) -> LedgerShortage | None:
    """Return what a ledger lacks; None if every entry has all its copies."""
    bookies: dict[BookieId, str] = {}
    short_count = 0
    lacks_members = False
    for fragment in copies.fragments:
        if fragment.is_empty:
            continue
        bad = {bookie: why for bookie in fragment.ensemble if (why := why_short(bookie))}
        is_small = fragment.lacking_members > 0
        if bad or is_small:
            short_count += fragment.entry_count
        bookies |= bad
        lacks_members |= is_small
    if not short_count:
        return None
    reasons = [f"{bookie_id} {why}" for bookie_id, why in bookies.items()]
    reasons += [TOO_FEW] * lacks_members
    entry_count = sum(fragment_copies.entry_count for fragment_copies in copies.fragments)
    size_bytes = copies.size_bytes * short_count // entry_count
    return LedgerShortage(ledger_id, "; ".join(reasons), tuple(bookies), short_count, size_bytes)


@dataclass(slots=True)
class _Known:
    """The copies of a ledger as last read; None if it is not closed, gone or unreadable."""

    copies: LedgerCopies | None
    read_s: float
    may_change: bool = False
    """Whether repair may have changed it since then."""


@dataclass(frozen=True, slots=True)
class StoredReplicas:
    """The bookies that a partition needs, and those on which its copies are whole."""

    replicas: tuple[BookieId, ...]
    """The bookies of the newest ledger, then those that ledgers with too few copies name."""
    in_sync: tuple[BookieId, ...]
    lacks_one: bool
    """Whether copies are missing for which no bookie is named."""
    shortages: tuple[LedgerShortage, ...]
    """The ended ledgers that have too few copies, oldest first."""

    @property
    def is_short(self) -> bool:
        """Whether the partition is under-replicated."""
        return self.lacks_one or len(self.in_sync) < len(self.replicas)

    def known_numbers(self, numbers: ReplicaNumbers) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the numbers of replicas and of those in sync, as far as they are cached."""
        known = {id_: number for id_ in self.replicas if (number := numbers.known_number(id_))}
        return self._numbers(known)

    async def read_numbers(
        self, numbers: ReplicaNumbers
    ) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the numbers of replicas and of those in sync. Raises MetadataError."""
        known = await numbers.numbers_of(self.replicas)
        return self._numbers(dict(zip(self.replicas, known, strict=True)))

    def _numbers(self, known: dict[BookieId, int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        replicas = tuple(known[replica] for replica in self.replicas if replica in known)
        in_sync = tuple(known[bookie] for bookie in self.in_sync if bookie in known)
        if not replicas:
            return (), ()
        return (*replicas, *([MISSING_REPLICA] * self.lacks_one)), in_sync


@dataclass(eq=False, repr=False)
class LedgerHealth:
    """The ledgers with too few copies of all logs, from `start` until `aclose`."""

    _ledgers: LedgerStore
    _jobs: ChildNames
    _states: BookieStates
    _logs: Callable[[], Iterable[TopicLog]]
    _now: Callable[[], float]
    _known: dict[PartitionKey, dict[LedgerId, _Known]] = field(default_factory=dict, init=False)
    _short: dict[PartitionKey, tuple[LedgerShortage, ...]] = field(default_factory=dict, init=False)
    _tasks: BackgroundTasks = field(default_factory=BackgroundTasks, init=False)

    def start(self) -> None:
        """Begin to look."""
        self._tasks.start(self._run())

    async def aclose(self) -> None:
        """Stop looking."""
        await self._tasks.aclose()

    def replicas_of(self, log: TopicLog) -> StoredReplicas:
        """Return the replicas of a partition that this broker leads, as of the last look."""
        members = log.replicas
        in_sync = tuple(bookie for bookie in log.in_sync if not self._states.why_short(bookie))
        shortages = self._short.get(log.key, ())
        named = dict.fromkeys(bookie for short in shortages for bookie in short.bookies)
        gone = [bookie for bookie in named if bookie not in members][:GONE_SHOWN_MAX]
        is_shown = bool(gone) or len(in_sync) < len(members)
        lacks_one = len(members) < log.wanted_replicas or bool(shortages and not is_shown)
        return StoredReplicas((*members, *gone), in_sync, lacks_one, shortages)

    async def look(self) -> None:
        """Look once at all ledgers. Raises MetadataError."""
        jobs = self._jobs_by_ledger()
        if not jobs and not self._states.any_short and not self._may_change():
            self._short.clear()
            return
        due: list[tuple[float, TopicLog, LedgerId]] = []
        short: dict[PartitionKey, tuple[LedgerShortage, ...]] = {}
        known: dict[PartitionKey, dict[LedgerId, _Known]] = {}
        for count, log in enumerate(self._logs()):
            before = self._known.get(log.key, {})
            ended = log.ended_ledgers
            known[log.key] = {id_: before[id_] for id_ in ended if id_ in before}
            checked = [self._shortage_of(ledger_id, known[log.key], jobs) for ledger_id in ended]
            if shortages := tuple(shortage for shortage in checked if shortage is not None):
                short[log.key] = shortages
            due += [
                (due_s, log, ledger_id)
                for ledger_id in ended
                if (due_s := self._due_s(known[log.key].get(ledger_id))) is not None
            ]
            if count % LOGS_PER_STEP == LOGS_PER_STEP - 1:
                await asyncio.sleep(0)
        self._known, self._short = known, short
        due.sort(key=lambda pair: pair[0])  # unknown ones first, then the oldest
        for start in range(0, min(len(due), READS_PER_LOOK), READS_AT_ONCE):
            some = due[start : min(start + READS_AT_ONCE, READS_PER_LOOK)]
            await asyncio.gather(*[self._read(log, ledger_id) for _, log, ledger_id in some])

    def _jobs_by_ledger(self) -> dict[LedgerId, JobName]:
        names = map(job_name_of, reversed(self._jobs.names))  # the most urgent job counts
        return {name.ledger_id: name for name in names if name is not None}

    def _shortage_of(
        self,
        ledger_id: LedgerId,
        known: dict[LedgerId, _Known],
        jobs: dict[LedgerId, JobName],
    ) -> LedgerShortage | None:
        job, seen = jobs.get(ledger_id), known.get(ledger_id)
        short: LedgerShortage | None = None
        if seen is not None and seen.copies is not None:
            short = shortage_of(ledger_id, seen.copies, self._states.why_short)
            is_left = any(map(self._states.is_leaving, seen.copies.members))
            seen.may_change |= job is not None or short is not None or is_left
        if short is None and job is not None and job.urgency != MOVING_URGENCY:
            return LedgerShortage(ledger_id, NAMED_BY_REPAIR, size_bytes=job.size_bytes)
        return short

    def _due_s(self, seen: _Known | None) -> float | None:
        """Return the time since which a ledger is to be read; None if it is not."""
        if seen is None:
            return 0.0
        return seen.read_s if seen.may_change and self._now() - seen.read_s > REREAD_S else None

    def _may_change(self) -> bool:
        """Return whether repair may have changed a ledger since it was read: what a bookie that is
        lost for good held is well again only in the metadata.
        """
        return any(found.may_change for known in self._known.values() for found in known.values())

    async def _read(self, log: TopicLog, ledger_id: LedgerId) -> None:
        try:
            ledger, _ = await self._ledgers.get(ledger_id)
            copies = ledger_copies(ledger)
            log.note_repaired(LedgerInfo.of(ledger))
        except (NodeNotFoundError, MetadataFormatError):
            copies = None
        known = self._known.setdefault(log.key, {})
        known[ledger_id] = _Known(copies, self._now(), may_change=copies is None)

    async def _run(self) -> None:
        while True:
            try:
                await self.look()
            except MetadataError as error:
                _log.debug("ledgers were not checked; the broker tries again: %s", error)
            await asyncio.sleep(LOOK_S)
