"""Integral over time of the number of entries with too few copies.

Leaves counting copies to `Ledger.copies`.

Invariants: only ledgers with too few copies are tracked; between two calls for a ledger its counts
grow evenly, so the mean of both ends is exact; time before 0 does not count.
"""

from collections.abc import Container
from dataclasses import dataclass, field

from benchmarks.fleet.ledgers import Ledger
from metadata.ids import BookieId, LedgerId


@dataclass(slots=True)
class CopyTracker:
    """Entry-seconds by number of copies, for numbers below `enough`."""

    away: Container[BookieId]
    """Bookies whose copies do not count."""
    enough: int
    entry_seconds: list[float] = field(default_factory=list)
    peak: list[int] = field(default_factory=list)
    """Maximum number of entries at any time, by number of copies: with that many or fewer."""
    lost_entries: int = 0
    lost_ledgers: dict[LedgerId, None] = field(default_factory=dict)
    _known: dict[LedgerId, tuple[Ledger, float, list[int]]] = field(default_factory=dict)
    _now: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.entry_seconds = [0.0] * self.enough
        self.peak = [0] * self.enough
        self._now = [0] * self.enough

    def before(self, ledger: Ledger, now: float) -> None:
        """Count the time until now; call it before anything about the ledger changes."""
        known = self._known.get(ledger.number)
        if known is not None:
            self._count(known, ledger.copies(now, self.away), now)

    def after(self, ledger: Ledger, now: float) -> None:
        """Track the new state of a ledger; call it after each `before`."""
        known = self._known.pop(ledger.number, None)
        if known is None and not self._may_deviate(ledger):
            return
        counts = ledger.copies(now, self.away)
        lost = counts[0] - (known[2][0] if known else 0)
        if lost > 0:
            self.lost_entries += lost
            self.lost_ledgers[ledger.number] = None
        self._move(known[2] if known else None, counts)
        # If a growing ledger lacks copies, its next entries will lack them too.
        if any(counts[: self.enough]) or (ledger.closed_s is None and self._may_deviate(ledger)):
            self._known[ledger.number] = (ledger, now, counts)
        else:
            self._move(counts, None)

    def drop(self, ledger: Ledger, now: float) -> None:
        """Count a ledger for the last time, before its deletion."""
        self.before(ledger, now)
        known = self._known.pop(ledger.number, None)
        if known is not None:
            self._move(known[2], None)

    def deviating(self) -> list[Ledger]:
        """List the ledgers with too few copies."""
        return [ledger for ledger, _, _ in self._known.values()]

    def has(self, ledger: Ledger) -> bool:
        """Return whether a ledger has too few copies."""
        return ledger.number in self._known

    def _may_deviate(self, ledger: Ledger) -> bool:
        """Return whether some fragment may lack copies; cheaper than counting."""
        return bool(ledger.gaps) or any(
            len(fragment.ensemble) < self.enough
            or any(bookie in self.away for bookie in fragment.ensemble)
            for fragment in ledger.metadata.fragments
        )

    def _count(self, known: tuple[Ledger, float, list[int]], counts: list[int], now: float) -> None:
        ledger, since, before = known
        elapsed = max(0.0, now - max(0.0, since))
        for copies in range(self.enough):
            self.entry_seconds[copies] += (before[copies] + counts[copies]) / 2 * elapsed
        self._move(before, counts)
        self._known[ledger.number] = (ledger, now, counts)

    def _move(self, before: list[int] | None, after: list[int] | None) -> None:
        at_most = 0
        for copies in range(self.enough):
            old = before[copies] if before else 0
            new = after[copies] if after else 0
            self._now[copies] += new - old
            at_most += self._now[copies]
            self.peak[copies] = max(self.peak[copies], at_most)
