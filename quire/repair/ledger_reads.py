"""Reads of the auditor: ledgers into its index and for reports of damage; which bookies stopped in
order, and which no ledger names.

Source: protocol rules 2.6, 9.1, 9.5, 9.8, 9.12 and 9.13; docs/repair.md, "The auditor".
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import compress, islice
from typing import Final, TypeVar

from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import FIRST_LEDGER_ID, LedgerStore
from metadata.registry.cookies import CookieStore
from metadata.registry.positions import PositionStore
from metadata.repair.lifecycle import Lifecycle
from metadata.repair.scrub import BadRange
from metadata.store.interface import MetadataStore
from quire.repair.bad_entries import bad_entries
from quire.repair.departures import StateChange
from quire.repair.ledger_index import LedgerIndex

CALLS_AT_ONCE: Final = 128
Item = TypeVar("Item")
Answer = TypeVar("Answer")
Damage = Mapping[LedgerId, frozenset[BookieId]]
"""Bookies with damaged entries that need a repair, by ledger."""
_Reports = dict[BookieId, tuple[BadRange, ...]]
DECIDED: Final = (Lifecycle.LOST, Lifecycle.REMOVED)
"""States of missing bookies for which an announcement changes nothing any more."""
EMPTIED: Final = (Lifecycle.DRAINING, Lifecycle.LIMBO)
"""States in which the copies of a bookie are moved while it may serve."""
NEVER_STARTED_AFTER_MS: Final = 24 * 3600 * 1000
"""Time after the format of a bookie, in ms, within which its first start is waited for."""


async def call_each(
    items: Iterable[Item], call: Callable[[Item], Awaitable[Answer]]
) -> list[Answer]:
    """Call with every item, CALLS_AT_ONCE at a time; return the answers in order. Raises the first
    error of a group, and calls none after it.
    """
    answers: list[Answer] = []
    left = iter(items)
    while group := list(islice(left, CALLS_AT_ONCE)):
        answers += await asyncio.gather(*map(call, group))
    return answers


class LedgerReads:
    """Reads ledgers into an index.

    A ledger whose record cannot be read is counted, and keeps what the index knows of it. A ledger
    that is not listed any more is dropped.
    """

    def __init__(self, ledgers: LedgerStore, index: LedgerIndex) -> None:
        self._ledgers = ledgers
        self._index = index
        self.unreadable_count = 0
        """Records that the latest complete pass could not read."""
        self.changed: set[LedgerId] = set()
        """Known ledgers that were read with other ensembles than before; the auditor clears it."""

    async def read_all(self) -> None:
        """Read every ledger. Raises MetadataError."""
        self.unreadable_count = 0
        await self._read_listed(is_known_read=True)
        self._index.drop_unused_shapes()

    async def catch_up(self) -> None:
        """Read the ledgers that are new, or were not CLOSED; list all ids, because a new ledger may
        have any id. Raises MetadataError.
        """
        await self.read(self._index.open_ledgers())
        await self._read_listed(is_known_read=False)

    async def read(self, ledger_ids: Iterable[LedgerId]) -> None:
        """Read some ledgers again, with fresh reads. Raises MetadataError."""
        await call_each(list(ledger_ids), partial(self._read, fresh=True))

    def put(self, ledger: LedgerMetadata) -> None:
        """Put a ledger into the index that was read."""
        if self._index.put(ledger):
            self.changed.add(ledger.ledger_id)

    async def _read_listed(self, *, is_known_read: bool) -> None:
        start = FIRST_LEDGER_ID
        batch: list[LedgerId] = []
        async for ledger_id in self._ledgers.list_ledger_ids():
            batch.append(ledger_id)
            if len(batch) == CALLS_AT_ONCE:
                await self._read_range(start, batch[-1], batch, is_known_read=is_known_read)
                start, batch = LedgerId(batch[-1] + 1), []
        await self._read_range(start, None, batch, is_known_read=is_known_read)

    async def _read_range(
        self,
        start: LedgerId,
        last: LedgerId | None,
        listed: Sequence[LedgerId],
        *,
        is_known_read: bool,
    ) -> None:
        """Read the listed ledgers of a range of ids; drop the others."""
        known = frozenset(self._index.known_between(start, last))
        for ledger_id in known.difference(listed):
            self._index.drop(ledger_id)
        unread = listed if is_known_read else [id_ for id_ in listed if id_ not in known]
        await call_each(unread, self._read)

    async def _read(self, ledger_id: LedgerId, *, fresh: bool = False) -> None:
        try:
            ledger, _ = await self._ledgers.get(ledger_id, fresh=fresh)
        except NodeNotFoundError:
            self._index.drop(ledger_id)
        except MetadataFormatError:
            self.unreadable_count += 1
        else:
            self.put(ledger)


class DamagedLedgers:
    """Ledgers whose damaged entries need a repair, by the reports of all bookies, as last read.

    A ledger is read when its reports change, when its job was done, and in each pass over all
    ledgers. A report that needs no repair never becomes a job, nor one of a ledger whose record
    cannot be read.
    """

    def __init__(self, ledgers: LedgerStore, put: Callable[[LedgerMetadata], None]) -> None:
        """`put` is called with each ledger that was read."""
        self._ledgers = ledgers
        self._put = put
        self._reports: dict[LedgerId, _Reports] = {}
        self._damage: dict[LedgerId, frozenset[BookieId]] = {}

    def forget(self, ledger_ids: Collection[LedgerId] | None = None) -> None:
        """Read these ledgers again the next time; all of them by default."""
        for ledger_id in list(self._reports) if ledger_ids is None else ledger_ids:
            self._reports.pop(ledger_id, None)

    async def read(self, reported: Mapping[BookieId, tuple[BadRange, ...]]) -> Damage:
        """Return what needs a repair. `reported` has the ranges of the bookies whose other copies
        count. Raises MetadataError.
        """
        by_ledger: defaultdict[LedgerId, _Reports] = defaultdict(dict)
        for bookie_id, ranges in reported.items():
            for range_ in ranges:
                reports = by_ledger[range_.ledger_id]
                reports[bookie_id] = (*reports.get(bookie_id, ()), range_)
        unread = [id_ for id_, bad in by_ledger.items() if self._reports.get(id_) != bad]
        await call_each(unread, lambda id_: self._read(id_, by_ledger[id_]))
        self._reports = {ledger_id: self._reports[ledger_id] for ledger_id in by_ledger}
        self._damage = {ledger_id: self._damage[ledger_id] for ledger_id in by_ledger}
        return {ledger_id: bookies for ledger_id, bookies in self._damage.items() if bookies}

    async def _read(self, ledger_id: LedgerId, reports: _Reports) -> None:
        try:
            ledger, _ = await self._ledgers.get(ledger_id)
        except (NodeNotFoundError, MetadataFormatError):
            damaged = frozenset[BookieId]()
        else:
            self._put(ledger)
            damaged = frozenset(
                bookie_id
                for bookie_id, ranges in reports.items()
                if bad_entries(ledger, bookie_id, ranges)
            )
        self._reports[ledger_id], self._damage[ledger_id] = reports, damaged


class OrderlyStops:
    """Reader of what bookies announced with their last position.

    A bookie counts as stopped only if its last process recorded the stop as its last action. The
    next start replaces that record before it registers, so a crash after that is none. A record
    that this release cannot read announces nothing.
    """

    def __init__(self, store: MetadataStore) -> None:
        self._positions = PositionStore(store)

    async def among(
        self,
        known: Collection[BookieId],
        registered: Container[BookieId],
        states: Mapping[BookieId, Lifecycle],
    ) -> frozenset[BookieId]:
        """Return which of the known bookies are not registered because they stopped in order, by
        fresh reads. Raises StoreUnavailableError.
        """
        missing = [
            bookie
            for bookie in known
            if bookie not in registered and states.get(bookie, Lifecycle.ACTIVE) not in DECIDED
        ]
        stopped = await call_each(missing, self._stopped)
        return frozenset(compress(missing, stopped))

    async def _stopped(self, bookie_id: BookieId) -> bool:
        try:
            record = (await self._positions.get(bookie_id)).record
        except MetadataFormatError:
            return False
        return record is not None and record.is_orderly


class UnnamedBookies:
    """Bookies that may be drained or removed because no known ledger names them.

    Only a bookie that drains, or is in limbo, becomes drained, or one that is about to be removed.
    Only a bookie that was formatted more than NEVER_STARTED_AFTER_MS ago, has not started since and
    is lost, or drained, becomes removed: it holds nothing, and its format failed or was given up.
    """

    def __init__(self, cookies: CookieStore, index: LedgerIndex) -> None:
        self._cookies = cookies
        self._index = index
        self._started: set[BookieId] = set()
        """Bookies that have started once."""

    async def changes(self, states: Mapping[BookieId, Lifecycle], now_ms: int) -> list[StateChange]:
        """Return the changes to make if another pass confirms that no ledger names the bookies.
        Raises MetadataError.
        """
        drained = [
            StateChange(bookie, state, Lifecycle.DRAINED, "no ledger names it")
            for bookie, state in states.items()
            if state in EMPTIED and not self._index.count_naming(bookie)
        ]
        removed = [
            StateChange(bookie, state, Lifecycle.REMOVED, "it was formatted, and never started")
            for bookie, state in states.items()
            if state in (Lifecycle.LOST, Lifecycle.DRAINED)
            and bookie not in self._index.named
            and await self._never_started(bookie, now_ms)
        ]
        return [*drained, *removed]

    async def confirmed(
        self, change: StateChange, now_ms: int, *, is_complete: bool
    ) -> StateChange | None:
        """Return the change to store after the pass; None if there is none. A bookie that is not
        removed after all is lost again. `is_complete`: the pass could read all ledgers. Raises
        MetadataError.
        """
        is_named = not is_complete or self._index.count_naming(change.bookie_id) > 0
        if change.to is not Lifecycle.REMOVED:
            return None if is_named else change
        if is_named or not await self._never_started(change.bookie_id, now_ms):
            return replace(
                change, before=Lifecycle.DRAINED, to=Lifecycle.LOST, reason="it was away"
            )
        return replace(change, before=Lifecycle.DRAINED)

    async def _never_started(self, bookie_id: BookieId, now_ms: int) -> bool:
        if bookie_id in self._started:
            return False
        try:
            cookie, version = await self._cookies.get(bookie_id)
        except (NodeNotFoundError, MetadataFormatError):
            return False
        if cookie.starts_at(version) > 0:
            self._started.add(bookie_id)
            return False
        return now_ms - cookie.created_ms >= NEVER_STARTED_AFTER_MS
