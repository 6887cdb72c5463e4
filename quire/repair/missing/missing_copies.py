"""Comparison of the closed ledgers of a cluster with their bookies, one at a time, for the auditor.

Leaves the order to `quire.repair.missing.check_order`, one ledger to
`quire.repair.missing.comparison`, and jobs to the auditor.

Invariants: one ledger at a time, followed by a pause of PAUSE_S; a bookie that did not answer is
not asked for SILENT_S; at most FOUND_MAX ledgers with missing copies are remembered. What is found
on a bookie stays until that bookie is compared again, or the metadata of the ledger changes.

Source: protocol rule 9.16; docs/repair.md, "Missing copies".
"""

import asyncio
import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from ledger_client.bookies.pool import BookiePool
from metadata.errors import MetadataError, MetadataFormatError, NodeNotFoundError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_store import LedgerStore
from metadata.registry.directory import BookieDirectory
from metadata.repair.settings import RepairSettings
from quire.repair.bad_entries import MissingRanges
from quire.repair.ledger_index import LedgerIndex
from quire.repair.missing.check_order import CheckOrder
from quire.repair.missing.comparison import Comparison, compare
from quire.repair.standing import Standing, Standings

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

_log = logging.getLogger(__name__)


class MissingCopies:
    """Missing copies, as last compared."""

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
        self._order.note([each for each in done if self._found.pop(each, None)])
        self._wake.set()

    def compare_soon(self, ledger_ids: Collection[LedgerId]) -> None:
        """Compare some ledgers soon."""
        self._order.note(ledger_ids)
        self._wake.set()

    def read(self) -> MissingRanges:
        """Return what is missing on bookies that can be repaired: those that are up and stay."""
        wanted = {
            ledger_id: {each: ranges for each, ranges in found.missing.items() if self._stays(each)}
            for ledger_id, found in self._found.items()
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
        except MetadataError as error:
            _log.debug("ledger %s was not compared, trying again: %s", ledger_id, error)
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
            missing = {each: before.missing[each] for each in sorted(kept)} | missing
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
