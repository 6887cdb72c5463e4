"""Ledgers whose damaged entries need a repair, from the reports of all bookies.

Leaves the reports to `metadata.repair.scrub_store`, and the repair to `quire.repair.range_repair`.

Invariants: a ledger is read when its reports change, when its job was done, and in each pass over
all ledgers; a report that needs no repair never becomes a job, nor one of a ledger whose record
cannot be read.

Source: protocol rule 9.12.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping

from metadata.errors import MetadataFormatError, NodeNotFoundError
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata
from metadata.ledgers.ledger_store import LedgerStore
from metadata.repair.scrub import BadRange
from quire.repair.bad_entries import bad_entries
from quire.repair.grouped_calls import call_each

Damage = Mapping[LedgerId, frozenset[BookieId]]
"""Bookies with damaged entries that need a repair, by ledger."""

_Reports = dict[BookieId, tuple[BadRange, ...]]


class DamagedLedgers:
    """Ledgers with damaged entries, as last read."""

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
            for each in ranges:
                reports = by_ledger[each.ledger_id]
                reports[bookie_id] = (*reports.get(bookie_id, ()), each)
        unread = [each for each, found in by_ledger.items() if self._reports.get(each) != found]
        await call_each(unread, lambda each: self._read(each, by_ledger[each]))
        self._reports = {each: self._reports[each] for each in by_ledger}
        self._damage = {each: self._damage[each] for each in by_ledger}
        return {each: bookies for each, bookies in self._damage.items() if bookies}

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
