"""Repair of one ledger: copies to a bookie for each need.

Invariants: the metadata and the standings are read again before each copy, so that only copies
under way are finished when a drain is cancelled or a bookie returns. A target that an earlier
attempt marked as incoming is used again. An entry that no source can return blocks the repair; a
timeout is not a proof that a copy is missing. A need that cannot be met does not keep the others
waiting. A ledger without needs keeps no mark, except an open in-sync one, whose writer copies. A
position that holds no entry, or only lost ones, is replaced without a copy and without the ledger's
key.

Source: protocol rules 9.1, 9.3, 9.7, 9.9, 9.12 and 11.2.
"""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from bookie.wire.messages import MASTER_KEY_BYTES
from ledger_client.bookies.placement import Shortage
from ledger_client.client_services import ClientServices
from ledger_client.copying import CopyLimits, CopyServices, FragmentCopier, OnProgress, Throttle
from ledger_client.digest import LedgerKeys
from ledger_client.errors import (
    DigestMismatchError,
    EntryConflictError,
    EntryLostError,
    EntryNotFoundError,
    LedgerError,
    LedgerNotFoundError,
    MetadataConflictError,
    NotEnoughBookiesError,
    QuorumTimeoutError,
    UnauthorizedError,
)
from ledger_client.protocol.copy import IncomingMark
from ledger_client.recovery.missing_writers import MissingWriters
from metadata.errors import MetadataError, NodeNotFoundError
from metadata.ids import UPDATE_TOKEN_BYTES, BookieId, EntryId, LedgerId, UpdateToken, Version
from metadata.ledgers.copies import fragment_copies, holders_of_entry
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from metadata.repair.lifecycle_store import LifecycleStore
from metadata.repair.scrub_store import Scrubs
from quire.repair.attempts import (
    Blocked,
    Deleted,
    Outcome,
    Postponed,
    Repaired,
    describe_shortage,
    joined,
    keys_of,
)
from quire.repair.needs import Cause, Need, needs_of
from quire.repair.open_ledger_repair import OpenLedgerRepair
from quire.repair.pacing import CopyShares
from quire.repair.publishing import LOST
from quire.repair.range_repair import RangeRepair
from quire.repair.spread import Places, is_better_place
from quire.repair.standing import Standing, Standings
from quire.tracing import spans as tracing

TARGETS_MAX: Final = 3
"""Maximum number of targets that are tried for one need."""
POSTPONED_MAX: Final = 3
"""Number of needs that are put off, as a rule after a timeout, until the others are put off too."""
CONFLICTS_MAX: Final = 5
"""Maximum number of attempts for a ledger that other processes change."""
NEXT_STEP_UNREADABLE: Final = (
    "bring a bookie that holds it back, or accept the loss with `quire ledger accept-loss`"
)

Look = Callable[[], Awaitable[tuple[Standings, Places]]]
"""Returns the standings now, and the places to which copies that are all good may move. Raises
MetadataError, and another error if no copy of the ledger may begin any more.
"""
Unmet = Blocked | Postponed
NO_KEY: Final = bytes(MASTER_KEY_BYTES)
"""Key of a copy without entries: nothing is sent with it."""


class LedgerRepair:
    """Repairs ledgers, one call each, with the services of one client."""

    def __init__(
        self,
        services: ClientServices,
        scrubs: Scrubs,
        limits: CopyLimits,
        missing_writers: MissingWriters,
    ) -> None:
        self.shares = CopyShares()
        self._ranges = RangeRepair(services, scrubs, limits, self.shares)
        self._services = services
        self._limits = limits
        self._open_ledgers = OpenLedgerRepair(services, missing_writers)
        self._copy_services = CopyServices(
            services.pool,
            services.ledgers,
            services.config,
            services.rng,
            LifecycleStore(services.store, services.rng),
        )

    def begin_again(self, ledger_id: LedgerId) -> None:
        """Begin the next repair of a ledger with its first damaged entry."""
        self._ranges.begin_again(ledger_id)

    async def repair(self, ledger_id: LedgerId, look: Look, on_progress: OnProgress) -> Outcome:
        """Repair the damaged entries of a ledger, then meet every need, also if that failed. Raises
        the errors of `look`.
        """
        standings, _ = await look()
        unrepaired = await self._ranges.repair(ledger_id, standings, look, on_progress)
        if isinstance(unrepaired, Deleted):
            return unrepaired
        outcome = await self._meet_all(ledger_id, look, on_progress)
        return joined((unrepaired, outcome)) or outcome

    async def _meet_all(self, ledger_id: LedgerId, look: Look, on_progress: OnProgress) -> Outcome:
        copies = conflicts = 0
        keys: LedgerKeys | None = None
        unmet: dict[Need, Unmet] = {}
        failed: defaultdict[Need, dict[BookieId, str]] = defaultdict(dict)
        while True:
            try:
                ledger, version = await self._services.ledgers.get(ledger_id, fresh=True)
            except NodeNotFoundError:
                return Deleted()
            except MetadataError as error:
                return Postponed(str(error))
            standings, places = await look()
            needs = needs_of(ledger, standings, places)
            unmet = {item: unmet[item] for item in needs if item in unmet}
            unmet |= {item: Blocked(LOST) for item in needs if item.is_lost}
            need = next((item for item in needs if item not in unmet), None)
            if need is None or _is_given_up(unmet):
                break
            try:
                holds = _holds_entries(ledger, need)
                if holds:
                    keys = keys or await keys_of(ledger, self._services.pool)
                used = keys if holds else LedgerKeys.with_master_key(ledger, NO_KEY)
                target = self._choose(ledger, need, standings, places, failed[need])
                outcome = await self._meet(ledger, need, used, target, failed[need], on_progress)
            except (NotEnoughBookiesError, QuorumTimeoutError, UnauthorizedError) as error:
                is_later = isinstance(error, QuorumTimeoutError)
                return Postponed(str(error)) if is_later else Blocked(str(error))
            except (MetadataConflictError, EntryLostError) as error:
                conflicts += 1
                if conflicts == CONFLICTS_MAX:
                    return Postponed(str(error))
                continue
            match outcome:
                case int():
                    copies += outcome
                case Deleted():
                    return outcome
                case Blocked() | Postponed():
                    unmet[need] = outcome
        ended = await self._end(ledger, version, standings, is_met=not unmet)
        return joined((*unmet.values(), ended)) or Repaired(copies)

    async def _end(
        self, ledger: LedgerMetadata, version: Version, standings: Standings, *, is_met: bool
    ) -> Outcome | None:
        """Do what is left besides copies: remove the marks of a ledger whose needs are met, and end
        an open ledger. Returns why it cannot be done, None if nothing is left.
        """
        is_open = ledger.state is not LedgerState.CLOSED
        try:
            if is_met and not (is_open and ledger.quorum.is_in_sync):  # those are its writer's
                ledger, version = await self._remove_marks(ledger, version)
        except MetadataError as error:
            return Postponed(str(error))
        if is_open and _is_affected(ledger, standings):
            return await self._open_ledgers.end(ledger, version, standings)
        return None

    async def _remove_marks(
        self, ledger: LedgerMetadata, version: Version
    ) -> tuple[LedgerMetadata, Version]:
        """Remove the marks that workers left which died; return what is stored then. Raises
        MetadataError.
        """
        marks = [
            IncomingMark(ledger.creation_token, fragment.first_entry_id, target)
            for fragment in ledger.fragments
            for target in fragment.incoming
        ]
        for mark in marks:
            token = UpdateToken(self._services.rng.randbytes(UPDATE_TOKEN_BYTES))
            changed = mark.removed(ledger, token)
            assert changed is not None, "the mark is in this metadata"
            version = await self._services.ledgers.compare_and_set(changed, version)
            ledger = changed
        return ledger, version

    # -- copies ------------------------------------------------------------------------------------

    async def _meet(
        self,
        ledger: LedgerMetadata,
        need: Need,
        keys: LedgerKeys | None,
        target: BookieId | Shortage,
        failed: dict[BookieId, str],
        on_progress: OnProgress,
    ) -> Unmet | Deleted | int:
        """Copy one fragment to one bookie. Returns why it cannot be done, or how many copies were
        made: none if the bookie failed, which is added to `failed`, or got other copies until now.
        """
        if keys is None:
            return Blocked(f"none of its bookies stores it: {NEXT_STEP_UNREADABLE}")
        if isinstance(target, Shortage):
            return Blocked(_shortage(target, failed))
        if self.shares.is_busy(target):
            if await self.shares.wait_changed():
                return 0
            return Postponed(f"{target} gets as many copies as it may")
        try:
            return await self._copy(ledger, need, target, keys, on_progress)
        except (NotEnoughBookiesError, EntryConflictError, UnauthorizedError) as error:
            failed[target] = error.message
        if len(failed) == TARGETS_MAX:
            return Postponed(f"{TARGETS_MAX} targets failed: {failed}")
        return 0

    async def _copy(
        self,
        ledger: LedgerMetadata,
        need: Need,
        target: BookieId,
        keys: LedgerKeys,
        on_progress: OnProgress,
    ) -> Unmet | Deleted | int:
        """Copy one fragment to a target. Returns why it cannot be done, or 1. Raises the errors of
        a target that fails, MetadataConflictError, and EntryLostError if a loss was accepted during
        the copy.
        """
        try:
            attributes: tracing.Attributes = {
                tracing.LEDGER: ledger.ledger_id,
                tracing.FIRST_ENTRY: need.first_entry_id,
                tracing.BOOKIE: target,
            }
            span = tracing.span("repair.copy", tracing.SpanKind.CLIENT, attributes)
            with self.shares.copying_to(target) as throttle, span:
                await self._copier(keys, throttle, on_progress).copy_fragment(
                    ledger.ledger_id, need.first_entry_id, target, need.replaces
                )
        except LedgerNotFoundError:
            return Deleted()
        except (EntryNotFoundError, DigestMismatchError) as error:
            return Blocked(f"{error}: {NEXT_STEP_UNREADABLE}")
        except (
            NotEnoughBookiesError,
            EntryConflictError,
            UnauthorizedError,
            MetadataConflictError,
            EntryLostError,
        ):
            raise
        except LedgerError as error:
            entry_id = error.entry_id
            if isinstance(error, QuorumTimeoutError) and entry_id is not None:
                sources = holders_of_entry(ledger, entry_id)
                if self._ranges.cannot_return(ledger.ledger_id, EntryId(entry_id), sources):
                    return Blocked(f"{error}: {NEXT_STEP_UNREADABLE}")
            return Postponed(str(error))
        return 1

    def _copier(
        self, keys: LedgerKeys, throttle: Throttle, on_progress: OnProgress
    ) -> FragmentCopier:
        return FragmentCopier(
            services=self._copy_services,
            keys=keys,
            limits=self._limits,
            throttle=throttle,
            on_progress=on_progress,
        )

    def _choose(
        self,
        ledger: LedgerMetadata,
        need: Need,
        standings: Standings,
        places: Places,
        failed: Mapping[BookieId, str],
    ) -> BookieId | Shortage:
        """Choose the bookie that gets the copy: a marked one first."""
        services = self._services
        fragment, up = ledger.fragment_of(need.first_entry_id), services.directory.bookies
        excluded = {**failed, **_not_better(ledger, need, places)}
        for marked in fragment.incoming:
            is_usable = (
                marked in up and up[marked].writable and standings.of(marked) is Standing.GOOD
            )
            if is_usable and marked not in excluded and marked not in fragment.ensemble:
                return marked
        ensemble = fragment.ensemble
        position = len(ensemble) if need.replaces is None else ensemble.index(need.replaces)
        if need.replaces is None:
            ensemble = (*ensemble, BookieId(""))  # the place of the new member
        excluded |= {b: "it is not good" for b, standing in standings.by_bookie.items()}
        chosen = services.placement.replacements(
            ledger.quorum, ensemble, frozenset((position,)), excluded
        )
        return chosen if isinstance(chosen, Shortage) else chosen[position]


def _holds_entries(ledger: LedgerMetadata, need: Need) -> bool:
    """Return whether the bookie that is needed must hold any entry."""
    copies = fragment_copies(ledger, ledger.fragment_index_of(need.first_entry_id))
    position = None if need.replaces is None else copies.ensemble.index(need.replaces)
    return copies.count_at(position) > 0


def _not_better(ledger: LedgerMetadata, need: Need, places: Places) -> dict[BookieId, str]:
    """Return the bookies to which a move would not make the spread better."""
    if need.cause is not Cause.MISPLACED or need.replaces is None:
        return {}
    holders = fragment_copies(ledger, ledger.fragment_index_of(need.first_entry_id)).holders
    return {
        bookie: "it is in no better place"
        for bookie in places.known
        if bookie not in holders.ensemble
        and not is_better_place(holders, ledger.quorum, places, need.replaces, bookie)
    }


def _is_given_up(unmet: Mapping[Need, Unmet]) -> bool:
    return sum(isinstance(why, Postponed) for why in unmet.values()) >= POSTPONED_MAX


def _is_affected(ledger: LedgerMetadata, standings: Standings) -> bool:
    return any(standings.of(b) is not Standing.GOOD for b in ledger.last_fragment.ensemble)


def _shortage(shortage: Shortage, failed: dict[BookieId, str]) -> str:
    text = describe_shortage(shortage)
    if failed:
        text += "; failed: " + ", ".join(f"{b}: {why}" for b, why in failed.items())
    return text
