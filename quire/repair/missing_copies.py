"""Missing copies: which members of closed ledgers lack entries that they must hold.

A close and a recovery need an ack quorum only, so a member may lack entries for ever. The auditor
compares the ledgers of a cluster with what their members say that they hold, one at a time.

Source: protocol rule 9.16; docs/repair.md, "Missing copies".
"""

import asyncio
from collections.abc import Callable, Collection, Iterable
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from ledger_client.bookies.connection_calls import BookieCallError
from ledger_client.bookies.pool import BookiePool
from ledger_client.digest import LedgerKeys
from ledger_client.errors import NotEnoughBookiesError, QuorumTimeoutError, UnauthorizedError
from ledger_client.reading.replica_reading import ReplicaReading
from metadata.errors import MetadataError, MetadataFormatError, NodeNotFoundError
from metadata.ids import LEDGER_ID_MAX, BookieId, LedgerId, Version
from metadata.ledgers.copies import bookies_with_entries, ranges_on
from metadata.ledgers.entry_ranges import Range
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.ledgers.ledger_store import LedgerStore
from metadata.registry.directory import BookieDirectory
from metadata.repair.settings import RepairSettings
from quire.repair.attempts import ANSWER_S, read_master_key
from quire.repair.bad_entries import MissingRanges, lacking
from quire.repair.ledger_index import LedgerIndex
from quire.repair.standing import Standing, Standings

WAITING_MAX: Final = 10_000
"""Maximum number of ledgers to compare soon, and of ledgers with an unknown member."""
WALK_EVERY_S_MIN: Final = 3_600
"""Minimum time between the starts of two walks, in seconds, unless an operator requests one."""


class CheckOrder:
    """Order in which one auditor compares ledgers. Pure.

    A ledger is compared soon after it is seen as CLOSED, again when a member that did not answer
    may answer now, and in a slow walk over all ledgers, from the newest to the oldest, at the
    interval of the scrubs.

    At most WAITING_MAX ledgers are remembered; if there are more, a walk finds them. A walk begins
    only after the index is complete, and at most once in WALK_EVERY_S_MIN. What is remembered is
    compared before the walk continues.
    """

    def __init__(self) -> None:
        self._due: dict[LedgerId, None] = {}
        self._put_off: dict[LedgerId, None] = {}
        self._walk_below: int | None = None
        """All closed ledgers with lower ids are compared in this walk; None without one."""
        self._began_ms: int | None = None
        """Start of the last walk; None before the first one."""
        self._requested_ms = 0
        """Request of an operator that the last walk served."""
        self._has_forgotten = False
        """Whether a ledger had no room since the last walk began."""

    def note_closed(self, ledger_id: LedgerId) -> None:
        """Compare a ledger soon that was closed; the first walk finds those closed before it."""
        if self._began_ms is not None:
            self.note((ledger_id,))

    def note(self, ledger_ids: Iterable[LedgerId]) -> None:
        """Compare some ledgers soon."""
        for ledger_id in ledger_ids:
            self._add(self._due, ledger_id)

    def put_off(self, ledger_id: LedgerId) -> None:
        """Compare a ledger again at the next `retry`: a member of it is unknown."""
        self._add(self._put_off, ledger_id)

    def retry(self) -> None:
        """Compare those ledgers soon that were put off: members may answer now."""
        waiting, self._put_off = self._put_off, {}
        self.note(waiting)

    def begin_if_due(self, settings: RepairSettings, now_ms: int) -> None:
        """Begin a walk if it is time, and none is under way. The index must be complete."""
        if self._walk_below is None and self._is_due(settings, now_ms):
            self._walk_below = LEDGER_ID_MAX + 1
            self._began_ms, self._has_forgotten = now_ms, False
            self._requested_ms = settings.scrub_requested_ms

    def next(self, closed_below: Callable[[int], LedgerId | None]) -> LedgerId | None:
        """Return the next ledger, which is not remembered any more; None if there is none now.
        `closed_below` returns the closed ledger with the highest id below another.
        """
        if self._due:
            ledger_id = next(iter(self._due))
            del self._due[ledger_id]
            return ledger_id
        if self._walk_below is None:
            return None
        self._walk_below = closed = closed_below(self._walk_below)
        return closed

    def _is_due(self, settings: RepairSettings, now_ms: int) -> bool:
        if self._began_ms is None or settings.scrub_requested_ms != self._requested_ms:
            return True
        if self._has_forgotten:
            every_s = WALK_EVERY_S_MIN
        elif settings.scrub_every_s:
            every_s = max(WALK_EVERY_S_MIN, settings.scrub_every_s)
        else:
            return False
        return now_ms - self._began_ms >= every_s * 1000

    def _add(self, ledgers: dict[LedgerId, None], ledger_id: LedgerId) -> None:
        if ledger_id in ledgers or len(ledgers) < WAITING_MAX:
            ledgers[ledger_id] = None
        else:
            self._has_forgotten = True


@dataclass(slots=True)
class Comparison:
    """What the members of a ledger lack."""

    missing: dict[BookieId, tuple[Range, ...]] = field(default_factory=dict)
    """Missing entries by bookie, the first ones of each, in their order."""
    unknown: dict[BookieId, str] = field(default_factory=dict)
    """Members that may lack entries, each with the reason why that is not known."""
    silent: tuple[BookieId, ...] = ()
    """Those of them that were asked, and did not answer."""
    version: Version | None = None
    """Version of the metadata that was compared; None if it is not one."""
    has_changed: bool = False
    """Whether the metadata changed meanwhile: then nothing is known, and nothing is missing."""


async def compare(
    ledger_id: LedgerId,
    ledgers: LedgerStore,
    pool: BookiePool,
    may_ask: Callable[[BookieId], bool],
    ranges_max: int,
) -> Comparison:
    """Compare a ledger; find at most `ranges_max` ranges of each bookie. Bookies that may not be
    asked are unknown. Raises NodeNotFoundError and other errors of MetadataError.

    An entry is missing only if a bookie listed everything around it, and the metadata did not
    change meanwhile; no answer, and every other answer, is unknown. Memory is bounded by one answer
    of a bookie, and by the ranges that the caller wants.
    """
    ledger, version = await ledgers.get(ledger_id, fresh=True)
    comparison = Comparison(version=version)
    asked: list[BookieId] = []
    if ledger.state is not LedgerState.CLOSED:
        return comparison
    for bookie_id in bookies_with_entries(ledger):
        if may_ask(bookie_id):
            asked.append(bookie_id)
        else:
            comparison.unknown[bookie_id] = "it was not asked"
    if not asked:
        return comparison
    try:
        await _ask(ledger, pool, asked, ranges_max, comparison)
    except (NotEnoughBookiesError, QuorumTimeoutError, UnauthorizedError) as error:
        comparison.unknown |= dict.fromkeys(asked, error.message)
        comparison.silent = tuple(asked) if isinstance(error, QuorumTimeoutError) else ()
        return comparison
    if comparison.missing and (await ledgers.get(ledger_id, fresh=True))[1] != version:
        return Comparison(has_changed=True)
    return comparison


async def _ask(
    ledger: LedgerMetadata,
    pool: BookiePool,
    asked: list[BookieId],
    ranges_max: int,
    comparison: Comparison,
) -> None:
    key = await read_master_key(pool, ledger.ledger_id, asked, timeout_s=ANSWER_S)
    if key is None:  # none of them stores an entry
        for bookie_id in asked:
            comparison.missing[bookie_id] = _first(ledger, bookie_id, ranges_max)
        return
    keys = LedgerKeys.with_master_key(ledger, key)
    pool.attach(ledger.ledger_id, key)
    try:
        for bookie_id in asked:
            try:
                missing = await _missing_at(
                    ReplicaReading(pool, bookie_id, keys), ledger, ranges_max
                )
            except BookieCallError as error:
                comparison.unknown[bookie_id] = str(error)
                if error.status is None:
                    comparison.silent = (*comparison.silent, bookie_id)
            else:
                if missing:
                    comparison.missing[bookie_id] = missing
    finally:
        pool.detach(ledger.ledger_id)


async def _missing_at(
    replica: ReplicaReading, ledger: LedgerMetadata, ranges_max: int
) -> tuple[Range, ...]:
    missing: list[Range] = []
    wanted = ranges_on(ledger, replica.bookie_id)
    async with aclosing(replica.stored_ranges()) as held, aclosing(lacking(wanted, held)) as parts:
        async for part in parts:
            missing.append(part)
            if len(missing) == ranges_max:
                break
    return tuple(missing)


def _first(ledger: LedgerMetadata, bookie_id: BookieId, ranges_max: int) -> tuple[Range, ...]:
    return tuple(islice(ranges_on(ledger, bookie_id), ranges_max))


PAUSE_S: Final = 0.02
"""Pause after each ledger, so that at most 50 are compared per second."""
SILENT_S: Final = 60.0
"""Time for which a bookie is not asked after it did not answer, in seconds."""
RETRY_S: Final = 5.0
"""Pause after a failure of the metadata service, in seconds."""
FOUND_MAX: Final = 10_000
"""Maximum number of ledgers with missing copies that are remembered; others wait."""
RANGES_SHOWN_MAX: Final = 4
"""Maximum number of missing ranges of one bookie that are remembered, for the reason of a job."""


class MissingCopies:
    """Missing copies, as last compared, one ledger at a time.

    A bookie that did not answer is not asked for SILENT_S. At most FOUND_MAX ledgers with missing
    copies are remembered. What is found on a bookie stays until that bookie is compared again, or
    the metadata of the ledger changes.
    """

    def __init__(
        self,
        ledgers: LedgerStore,
        pool: BookiePool,
        directory: BookieDirectory,
        on_change: Callable[[], None],
    ) -> None:
        self._order = CheckOrder()
        self.index = LedgerIndex(self._order.note_closed)
        """The ledgers to compare; the auditor keeps it."""
        self._ledgers = ledgers
        self._pool = pool
        self._directory = directory
        self._on_change = on_change
        self._standings = Standings()
        self._up: frozenset[BookieId] = frozenset()
        self._silent_until_s: dict[BookieId, float] = {}
        self._found: dict[LedgerId, Comparison] = {}
        self._wake = asyncio.Event()

    def follow(self, standings: Standings, settings: RepairSettings, now_ms: int) -> None:
        """Use these standings and settings from now on. The index must be complete."""
        up = frozenset(self._directory.bookies)
        if (up, standings) != (self._up, self._standings):
            self._up, self._standings = up, standings
            self._order.retry()
        self._order.begin_if_due(settings, now_ms)
        self._wake.set()

    def compare_again(self) -> None:
        """Compare what lacks copies, and what had an unknown member, once more."""
        self._order.retry()
        self._order.note(self._found)
        self._wake.set()

    def forget(self, done: Collection[LedgerId]) -> None:
        """Compare some ledgers again whose jobs are done: until then they lack nothing."""
        self._order.note([ledger_id for ledger_id in done if self._found.pop(ledger_id, None)])
        self._wake.set()

    def compare_soon(self, ledger_ids: Collection[LedgerId]) -> None:
        """Compare some ledgers soon."""
        self._order.note(ledger_ids)
        self._wake.set()

    def read(self) -> MissingRanges:
        """Return what is missing on bookies that can be repaired: those that are up and stay."""
        wanted = {
            ledger_id: {id_: ranges for id_, ranges in row.missing.items() if self._stays(id_)}
            for ledger_id, row in self._found.items()
        }
        return {ledger_id: missing for ledger_id, missing in wanted.items() if missing}

    async def run(self) -> None:
        """Compare until cancelled."""
        while True:
            self._wake.clear()
            ledger_id = self._order.next(self.index.closed_below)
            if ledger_id is None:
                await self._wake.wait()
            else:
                await self._compare(ledger_id)
                await asyncio.sleep(PAUSE_S)

    async def _compare(self, ledger_id: LedgerId) -> None:
        try:
            comparison = await compare(
                ledger_id, self._ledgers, self._pool, self._may_ask, RANGES_SHOWN_MAX
            )
        except (NodeNotFoundError, MetadataFormatError):
            self._found.pop(ledger_id, None)
            return
        except MetadataError:
            self._order.note((ledger_id,))
            await asyncio.sleep(RETRY_S)
            return
        if comparison.has_changed:
            self._order.note((ledger_id,))
            return
        if comparison.unknown:
            self._order.put_off(ledger_id)
            until_s = asyncio.get_running_loop().time() + SILENT_S
            self._silent_until_s |= dict.fromkeys(comparison.silent, until_s)
        self._remember(ledger_id, comparison)

    def _remember(self, ledger_id: LedgerId, comparison: Comparison) -> None:
        before, missing = self._found.get(ledger_id, Comparison()), comparison.missing
        if before.version == comparison.version:  # no answer does not show that they are back
            kept = before.missing.keys() & comparison.unknown.keys()
            missing = {bookie: before.missing[bookie] for bookie in sorted(kept)} | missing
        if not missing:
            self._found.pop(ledger_id, None)
        elif ledger_id in self._found or len(self._found) < FOUND_MAX:
            has_changed = before.missing != missing
            self._found[ledger_id] = replace(comparison, missing=missing)
            if has_changed:
                self._on_change()
        else:
            self._order.put_off(ledger_id)

    def _may_ask(self, bookie_id: BookieId) -> bool:
        now_s = asyncio.get_running_loop().time()
        return self._stays(bookie_id) and self._silent_until_s.get(bookie_id, now_s) <= now_s

    def _stays(self, bookie_id: BookieId) -> bool:
        registered = self._directory.bookies.get(bookie_id)
        is_up = registered is not None and not registered.is_in_limbo
        return is_up and self._standings.of(bookie_id) is Standing.GOOD
