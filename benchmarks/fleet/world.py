"""Shared state of all parts of one simulated fleet.

Leaves every decision to the parts: `appending`, `recovering`, `copying`, `repairing`.

Invariants: `written_by` maps a bookie to the seats whose last fragment names it, `held_by` to the
ledgers with a fragment that names it, `lacking` to the ledgers with a gap of it.
"""

from collections.abc import Callable
from functools import partial
from random import Random

from benchmarks.fleet.agenda import Agenda
from benchmarks.fleet.assumptions import HOUR_S, Assumptions
from benchmarks.fleet.bookies import Bookies
from benchmarks.fleet.configurations import Configuration
from benchmarks.fleet.ledgers import Ledger, Seat
from benchmarks.fleet.measures import Measures
from benchmarks.fleet.tracking import CopyTracker
from metadata.ids import BookieId, LedgerId
from metadata.ledgers.ledger_metadata import LedgerMetadata


class World:
    """One fleet under one configuration."""

    def __init__(self, configuration: Configuration, assumptions: Assumptions, seed: int) -> None:
        self.configuration = configuration
        self.assumptions = assumptions
        # Ledgers written before the measured time fill the disks; nothing fails until then.
        self.agenda = Agenda(-(assumptions.retention_hours + assumptions.ledger_hours) * HOUR_S)
        self.bookies = Bookies(assumptions, Random(f"{seed}/placement"))
        self.metadata_store = MetadataStoreModel(assumptions, self.agenda)
        self.measures = Measures(assumptions.end_s)
        self.existing = CopyTracker(self.bookies.lost, configuration.replica_count)
        self.readable = CopyTracker(self.bookies.silent, 1)
        self.seats: list[Seat] = []
        self.written_by: dict[BookieId, dict[int, Seat]] = {}
        self.held_by: dict[BookieId, dict[LedgerId, Ledger]] = {}
        self.lacking: dict[BookieId, dict[LedgerId, Ledger]] = {}

    @property
    def now(self) -> float:
        """Current time of the simulation."""
        return self.agenda.now

    @property
    def is_measuring(self) -> bool:
        """Whether the measured time has begun."""
        return self.agenda.now >= 0

    def alter(self, ledger: Ledger, change: Callable[[], None]) -> None:
        """Apply a change of a ledger's copies, and count the states before and after it."""
        self.existing.before(ledger, self.now)
        self.readable.before(ledger, self.now)
        change()
        self.existing.after(ledger, self.now)
        self.readable.after(ledger, self.now)

    def store(self, ledger: Ledger, metadata: LedgerMetadata) -> None:
        """Apply new metadata of a ledger."""
        if metadata.fragments is ledger.metadata.fragments:  # closed, and on the same bookies
            ledger.metadata = metadata
            return
        old = _members(ledger.metadata)
        ledger.metadata = metadata
        new = _members(metadata)
        for bookie in new:
            if bookie not in old:
                self.held_by.setdefault(bookie, {})[ledger.number] = ledger
        for bookie in old:
            if bookie not in new:
                self.held_by[bookie].pop(ledger.number, None)
                self.drop_gaps(ledger, bookie)

    def enter(self, ledger: Ledger) -> None:
        """Add a new ledger."""
        for member in _members(ledger.metadata):
            self.held_by.setdefault(member, {})[ledger.number] = ledger

    def drop_gaps(self, ledger: Ledger, bookie_id: BookieId) -> None:
        """Remove the gaps of a bookie in a ledger."""
        ledger.gaps.pop(bookie_id, None)
        self.lacking.get(bookie_id, {}).pop(ledger.number, None)

    def seat_at(self, seat: Seat, ensemble: tuple[BookieId, ...]) -> None:
        """Record the bookies that store a seat's new entries from now on."""
        for bookie in ensemble:
            self.written_by.setdefault(bookie, {})[seat.number] = seat

    def unseat(self, seat: Seat) -> None:
        """Record that no bookie stores entries for a seat."""
        for bookie in seat.ensemble:
            self.written_by[bookie].pop(seat.number, None)

    def delete_later(self, ledger: Ledger) -> None:
        """Schedule the deletion of a closed ledger for the end of its retention."""
        retention_s = self.assumptions.retention_hours * HOUR_S
        self.agenda.after(retention_s, partial(self._delete, ledger))

    def _delete(self, ledger: Ledger) -> None:
        self.existing.drop(ledger, self.now)
        self.readable.drop(ledger, self.now)
        self.measures.stored(ledger, self.now)
        ledger.is_deleted = True
        for member in _members(ledger.metadata):
            self.held_by[member].pop(ledger.number, None)
            self.drop_gaps(ledger, member)


class MetadataStoreModel:
    """Model of ZooKeeper: up or down, with a limited number of writes per second."""

    def __init__(self, assumptions: Assumptions, agenda: Agenda) -> None:
        self._assumptions = assumptions
        self._agenda = agenda
        self._free_s = agenda.now
        self.is_up = True

    def write(self, count: int = 1) -> float:
        """Queue `count` writes behind those of others; return the time when they are done."""
        begin_s = max(self._free_s, self._agenda.now)
        self._free_s = begin_s + count / self._assumptions.zookeeper_writes
        return self._free_s


def _members(metadata: LedgerMetadata) -> dict[BookieId, None]:
    return dict.fromkeys(bookie for fragment in metadata.fragments for bookie in fragment.ensemble)
