"""Copies of one repair worker, and how fast they run.

Leaves which copies are made to `benchmarks.fleet.repairing`.

Invariants: a worker uses its part of each ceiling, divided by the number of workers, whether the
others are busy or not; its copies share each part equally; a copy ends once its bytes have passed
and its ledger was marked, read back and swapped.

Source: protocol rule 9.3; docs/repair.md, "Limits"; docs/fleet.md, "How repair is modelled".
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from benchmarks.fleet.agenda import Agenda
from benchmarks.fleet.assumptions import Assumptions
from benchmarks.fleet.ledgers import Ledger
from metadata.ids import BookieId, EntryId

DONE_BYTES: Final = 1.0
"""Rest of a copy that counts as nothing: rounding of times."""


@dataclass(slots=True, eq=False)
class Copy:
    """One copy under way: of one fragment, from one bookie to another."""

    ledger: Ledger
    first_entry_id: EntryId
    absent: BookieId | None
    """The member to replace; None if the fragment has too few members."""
    source: BookieId
    target: BookieId
    entries: int
    left_bytes: float
    ready_s: float
    """Time before which it does not end, whatever its size."""
    bytes_per_s: float = 0.0


class RepairWorker:
    """One process of repair, beside one bookie."""

    def __init__(
        self, agenda: Agenda, assumptions: Assumptions, on_end: Callable[[Copy], None]
    ) -> None:
        """`on_end` is called when a copy has ended."""
        self._agenda = agenda
        self._assumptions = assumptions
        self._on_end = on_end
        self._since_s = agenda.now
        self._turn = 0  # of the last change; a planned look of an earlier turn does nothing
        self.copies: list[Copy] = []

    def begin(self, copy: Copy, workers: int) -> None:
        """Begin a copy while there are `workers` in the cluster."""
        self._advance()
        self.copies.append(copy)
        self._pace(workers)

    def stop(self, copy: Copy, workers: int) -> None:
        """Stop a copy, which is not made."""
        self._advance()
        self.copies.remove(copy)
        self._pace(workers)

    def read_elsewhere(self, copy: Copy, source: BookieId, workers: int) -> None:
        """Continue a copy with another source."""
        self._advance()
        copy.source = source
        self._pace(workers)

    def _advance(self) -> None:
        passed_s = self._agenda.now - self._since_s
        for copy in self.copies:
            copy.left_bytes -= passed_s * copy.bytes_per_s
        self._since_s = self._agenda.now

    def _pace(self, workers: int) -> None:
        """Set the rate of each copy, and plan the look at the next end."""
        rates = rates_of(self.copies, self._assumptions, workers)
        ends = []
        for copy, bytes_per_s in zip(self.copies, rates, strict=True):
            copy.bytes_per_s = bytes_per_s
            copied_s = self._agenda.now + max(0.0, copy.left_bytes) / bytes_per_s
            ends.append(max(copied_s, copy.ready_s))
        self._turn += 1
        turn = self._turn
        if ends:
            self._agenda.at(min(ends), lambda: self._look(turn, workers))

    def _look(self, turn: int, workers: int) -> None:
        if turn != self._turn:
            return
        self._advance()
        now = self._agenda.now
        ended = [e for e in self.copies if e.left_bytes <= DONE_BYTES and e.ready_s <= now]
        for copy in ended:
            self.copies.remove(copy)
        self._pace(workers)
        for copy in ended:
            self._on_end(copy)


def rates_of(copies: list[Copy], assumptions: Assumptions, workers: int) -> list[float]:
    """Return the bytes per second of each of one worker's copies."""
    targets = Counter(copy.target for copy in copies)
    sources = Counter(copy.source for copy in copies)
    shared = min(assumptions.worker_bytes_per_s, assumptions.repair_bytes_per_s / workers)
    to_one = assumptions.bookie_bytes_per_s / workers
    from_one = assumptions.source_bytes_per_s / workers
    return [
        min(
            shared / len(copies),
            to_one / targets[copy.target],
            from_one / sources[copy.source],
        )
        for copy in copies
    ]
