"""Sums over one simulated month of one configuration.

Leaves entries by number of copies to `tracking`, and the published figures to `results`.

Invariants: only the measured time counts, from 0 to its end; overlapping outages of one seat count
once; `longest_outage_s` is of a single seat.
"""

from dataclasses import dataclass, field

from benchmarks.fleet.assumptions import HOUR_S
from benchmarks.fleet.ledgers import Ledger, Seat


@dataclass(slots=True)
class Measures:
    """Sums over all ledgers."""

    end_s: float
    outage_s: float = 0.0
    longest_outage_s: float = 0.0
    slow_s: float = 0.0
    change_count: int = 0
    ledgers_created: int = 0
    recovery_count: int = 0
    undecided_count: int = 0
    undecided_s: float = 0.0
    longest_undecided_s: float = 0.0
    given_up_count: int = 0
    stored_entry_s: float = 0.0
    repaired_entries: int = 0
    caught_up_entries: int = 0
    copied_per_hour: dict[int, int] = field(default_factory=dict)

    def outage(self, seat: Seat, begin_s: float, end_s: float) -> None:
        """Count a time without confirmed appends; it may overlap the previous one."""
        begin_s, end_s = max(0.0, begin_s), min(end_s, self.end_s)
        if end_s <= begin_s:
            return
        if begin_s > seat.outage_end_s:
            seat.outage_begin_s = seat.outage_end_s = begin_s
        self.outage_s += max(0.0, end_s - seat.outage_end_s)
        self.outage_s += max(0.0, seat.outage_begin_s - begin_s)
        seat.outage_begin_s = min(seat.outage_begin_s, begin_s)
        seat.outage_end_s = max(seat.outage_end_s, end_s)
        length_s = seat.outage_end_s - seat.outage_begin_s
        self.longest_outage_s = max(self.longest_outage_s, length_s)

    def slow(self, begin_s: float, end_s: float) -> None:
        """Count a time in which one seat's appends waited for a slow bookie."""
        self.slow_s += max(0.0, min(end_s, self.end_s) - max(0.0, begin_s))

    def undecided(self, begin_s: float, end_s: float) -> None:
        """Count a recovery that could not decide where its ledger ends."""
        length_s = max(0.0, end_s - begin_s)
        self.undecided_s += length_s
        self.longest_undecided_s = max(self.longest_undecided_s, length_s)

    def copied(self, now: float, entries: int) -> None:
        """Count the entries of a copy."""
        hour = int(now // HOUR_S)
        self.copied_per_hour[hour] = self.copied_per_hour.get(hour, 0) + entries

    def stored(self, ledger: Ledger, until_s: float) -> None:
        """Count how long a ledger's entries were kept, until its deletion or the end."""
        entries = ledger.end(until_s)
        grown_s = until_s if ledger.closed_s is None else ledger.closed_s
        if grown_s > max(0.0, ledger.created_s):
            begin_s = max(0.0, ledger.created_s)
            share = (begin_s - ledger.created_s) / (grown_s - ledger.created_s)
            self.stored_entry_s += entries * (1 + share) / 2 * (grown_s - begin_s)
        self.stored_entry_s += entries * max(0.0, until_s - max(0.0, grown_s))

    @property
    def busiest_hour_entries(self) -> int:
        """Maximum number of entries copied in one hour."""
        return max(self.copied_per_hour.values(), default=0)
