"""Repair of damaged and missing entries of one ledger, on the members that lack them.

Invariants: only entries that a bookie reports, or lists the ledger without, are copied to it; the
repair of damage ends when the bookie does not report it any more; entries that no other copy has
block the job, and are not touched; a member that does not answer may lack entries. Each range is
tried before the job is blocked.

Source: protocol rules 9.12 and 9.16.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from typing import Final

from ledger_client.client_services import ClientServices
from ledger_client.copying import CopyLimits, OnProgress, RangeCopier
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    DigestMismatchError,
    EntryConflictError,
    EntryNotFoundError,
    LedgerError,
    LedgerNotFoundError,
    NotEnoughBookiesError,
    QuorumTimeoutError,
    UnauthorizedError,
)
from metadata.errors import MetadataError, NodeNotFoundError
from metadata.ids import BookieId, EntryId, LedgerId
from metadata.ledgers.copies import holders_of_entry
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.repair.scrub import NEVER_SCRUBBED
from metadata.repair.scrub_store import Scrubs, ScrubStore
from quire.repair.attempts import Blocked, Deleted, Outcome, Postponed, joined, keys_of
from quire.repair.bad_entries import BadEntries, bad_entries, missing_entries
from quire.repair.missing_copies import Comparison, compare
from quire.repair.pacing import CopyShares
from quire.repair.standing import Standing, Standings

RANGES_MAX: Final = 10_000
"""Maximum number of missing ranges of one bookie that are copied in one attempt."""
FAILING_S_MAX: Final = 60.0
"""Time after which an attempt in which copies fail ends, in seconds: the next one does the rest."""
ROUNDS_MAX: Final = 1_000
"""Maximum number of ledgers whose rest is remembered, as many as may have jobs; one more replaces
the first.
"""
REPORT_S_MAX: Final = 10.0
"""Maximum time in which a bookie that got good copies reports so, in seconds."""
NEXT_STEP_NO_COPY: Final = "bring a bookie back that holds them, or accept the loss"


class RangeRepair:
    """Repairs damaged and missing entries with the services of one client."""

    def __init__(
        self, services: ClientServices, scrubs: Scrubs, limits: CopyLimits, shares: CopyShares
    ) -> None:
        self._services = services
        self._scrubs = scrubs
        self._store = ScrubStore(services.store, services.rng)
        self._limits = limits
        self._shares = shares
        self._rounds: dict[LedgerId, tuple[BadEntries, Outcome | None]] = {}
        """Last range that an attempt tried which ended before the others, and what failed so far.
        """

    def begin_again(self, ledger_id: LedgerId) -> None:
        """Begin the next attempt with the first range: what an earlier one left may be done."""
        self._rounds.pop(ledger_id, None)

    async def repair(
        self,
        ledger_id: LedgerId,
        standings: Standings,
        before_each: Callable[[], Awaitable[object]],
        on_progress: OnProgress,
    ) -> Outcome | None:
        """Store good copies of the damaged and missing entries of a ledger. Return why that failed;
        None if there is nothing left to do. Raises what `before_each` raises, which is called
        before each copy.
        """
        services = self._services
        may_ask = partial(self._is_usable, standings=standings)
        try:
            ledger, _ = await services.ledgers.get(ledger_id, fresh=True)
            bad = await self._find(ledger, may_ask)
            compared = await compare(
                ledger_id, services.ledgers, services.pool, may_ask, RANGES_MAX
            )
            bad += missing_entries(compared.missing)
            keys = await keys_of(ledger, services.pool) if bad else None
        except NodeNotFoundError:
            return Deleted()
        except (MetadataError, QuorumTimeoutError) as error:
            return Postponed(str(error))
        except (NotEnoughBookiesError, UnauthorizedError) as error:
            return Blocked(error.message)
        if not bad:
            return _left(compared)
        if keys is None:
            return Blocked("no bookie that stores it returned its key")
        copied = await self._copy_all(ledger, bad, keys, before_each, on_progress)
        return joined((_left(compared), copied))

    async def _copy_all(
        self,
        ledger: LedgerMetadata,
        bad: list[BadEntries],
        keys: LedgerKeys,
        before_each: Callable[[], Awaitable[object]],
        report: OnProgress,
    ) -> Outcome | None:
        """Copy the ranges in the order of the entries, in several attempts if copies fail for long.
        Only the last attempt can end in a block: each range was tried once then.
        """
        last, failed = self._rounds.pop(ledger.ledger_id, (None, None))
        until_s = asyncio.get_running_loop().time() + FAILING_S_MAX
        left = [part for part in sorted(bad, key=_place) if not last or _place(part) > _place(last)]
        for part in left:
            await before_each()
            outcome = await self._copy(ledger, part, keys, report)
            if isinstance(outcome, Deleted):
                return outcome
            failed = joined((failed, outcome))
            is_late = asyncio.get_running_loop().time() > until_s
            if outcome and is_late and part is not left[-1]:
                if len(self._rounds) == ROUNDS_MAX:
                    del self._rounds[next(iter(self._rounds))]
                self._rounds[ledger.ledger_id] = part, failed
                return Postponed(f"the next attempt copies the rest: {outcome.reason}")
        return failed

    def cannot_return(
        self, ledger_id: LedgerId, entry_id: EntryId, sources: Iterable[BookieId]
    ) -> bool:
        """Return whether each of these bookies is away, or reports that its copy of an entry is
        damaged: then only a change helps, and a slow answer is not the cause.
        """
        registered, records = self._services.directory.bookies, self._scrubs.records
        return not any(
            source in registered
            and not any(
                bad.first_entry_id <= entry_id <= bad.last_entry_id
                for bad in records.get(source, NEVER_SCRUBBED).bad_of(ledger_id)
            )
            for source in sources
        )

    def _is_usable(self, bookie_id: BookieId, standings: Standings) -> bool:
        registered = self._services.directory.bookies.get(bookie_id)
        is_up = registered is not None and not registered.is_in_limbo
        return is_up and standings.of(bookie_id) is Standing.GOOD

    async def _find(
        self, ledger: LedgerMetadata, is_usable: Callable[[BookieId], bool]
    ) -> list[BadEntries]:
        """Return what the bookies report of a ledger now, as far as it can be repaired. Raises
        MetadataError.
        """
        bad: list[BadEntries] = []
        members = dict.fromkeys(b for fragment in ledger.fragments for b in fragment.ensemble)
        for bookie_id in members:
            seen = self._scrubs.records.get(bookie_id, NEVER_SCRUBBED)
            if is_usable(bookie_id) and seen.bad_of(ledger.ledger_id):
                record = await self._store.get(bookie_id)
                bad += bad_entries(ledger, bookie_id, record.bad)
        return bad

    async def _copy(
        self, ledger: LedgerMetadata, bad: BadEntries, keys: LedgerKeys, on_progress: OnProgress
    ) -> Blocked | Postponed | Deleted | None:
        services, target = self._services, bad.bookie_id
        if self._shares.is_busy(target):
            return Postponed(f"{target} gets as many copies as it may")
        try:
            with self._shares.copying_to(target) as throttle:
                copier = RangeCopier(
                    pool=services.pool,
                    ledgers=services.ledgers,
                    keys=keys,
                    config=services.config,
                    rng=services.rng,
                    limits=self._limits,
                    throttle=throttle,
                    on_progress=on_progress,
                )
                await copier.copy(bad.first_entry_id, bad.last_entry_id, target)
        except LedgerNotFoundError:
            return Deleted()
        except (EntryNotFoundError, DigestMismatchError, QuorumTimeoutError) as error:
            entry_id = EntryId(bad.first_entry_id if error.entry_id is None else error.entry_id)
            others = [holder for holder in holders_of_entry(ledger, entry_id) if holder != target]
            is_slow = not self.cannot_return(ledger.ledger_id, entry_id, others)
            if isinstance(error, QuorumTimeoutError) and is_slow:
                return Postponed(str(error))  # no change would end a block
            why = f"{error.message}: {NEXT_STEP_NO_COPY}"
            return Blocked(f"{bad.text} cannot be repaired, no good copy was read ({why})")
        except (NotEnoughBookiesError, EntryConflictError, UnauthorizedError) as error:
            return Blocked(f"{bad.text} cannot be repaired: {error.message}")
        except (LedgerError, MetadataError) as error:
            return Postponed(str(error))
        if await self._is_reported(ledger, bad):
            why = "good copies were stored, and it still reports damage: see its log"
            return Blocked(f"{bad.text}: {why}")
        return None

    async def _is_reported(self, ledger: LedgerMetadata, bad: BadEntries) -> bool:
        """Wait until the bookie does not report the entries any more; return whether it does."""
        changed = asyncio.Event()
        cancel = self._scrubs.on_bad_change(changed.set)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REPORT_S_MAX):
                    while self._overlaps(ledger, bad):
                        await changed.wait()
                        changed.clear()
        finally:
            cancel()
        return self._overlaps(ledger, bad)

    def _overlaps(self, ledger: LedgerMetadata, bad: BadEntries) -> bool:
        record = self._scrubs.records.get(bad.bookie_id, NEVER_SCRUBBED)
        return any(
            span.first_entry_id <= bad.last_entry_id and span.last_entry_id >= bad.first_entry_id
            for span in record.bad_of(ledger.ledger_id)
        )


def _place(bad: BadEntries) -> tuple[EntryId, BookieId]:
    return bad.first_entry_id, bad.bookie_id


def _left(compared: Comparison) -> Outcome | None:
    """Return why entries may be missing after all that was found is copied; None if none can."""
    if compared.has_changed:
        return Postponed("its metadata changed while its copies were compared")
    if compared.silent:
        why = "; ".join(compared.unknown[bookie] for bookie in compared.silent)
        return Postponed(f"it is not known what its members hold ({why})")
    if any(len(ranges) == RANGES_MAX for ranges in compared.missing.values()):
        return Postponed("more entries are missing than are copied in one attempt")
    return None
