"""Size of a fault campaign, and its result.

Leaves the campaigns to their modules. Each has `run(budget) -> Summary`.

Format of a printed summary: one JSON object. `is_well` says whether every guarantee was kept in the
work done; it is false for a skipped campaign. `result` says how much was done.
"""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

SMALL: Final = "small"
FULL: Final = "full"
EXIT_BROKEN: Final = 1
EXIT_NOT_WHOLE: Final = 2
VIOLATIONS_SHOWN_MAX: Final = 20


@dataclass(frozen=True, slots=True)
class Budget:
    """Requested size of a campaign."""

    size: str = SMALL
    seed: int = 1
    seconds_max: float | None = None
    """Start no cycle after this time, in seconds; None: all cycles are done."""

    def cycles(self, *, small: int, full: int) -> int:
        """Return the number of cycles to do."""
        return full if self.size == FULL else small


@dataclass(slots=True)
class Summary:
    """Work and findings of one campaign."""

    name: str
    budget: Budget
    wanted: int
    cycles: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Further facts to report, which are no broken guarantees."""
    skipped: str = ""
    """Reason why this machine cannot run it; empty if it ran."""
    _began: float = field(default_factory=time.monotonic)

    @property
    def is_well(self) -> bool:
        """Whether it ran, and every guarantee was kept."""
        return not self.violations and not self.skipped

    @property
    def is_whole(self) -> bool:
        """Whether all requested work was done."""
        return not self.skipped and self.cycles >= self.wanted

    @property
    def result(self) -> str:
        """Describe the result, and how much of the requested work was done."""
        if self.skipped:
            return f"skipped, 0 of {self.wanted}"
        found = "broken promises" if self.violations else "clean"
        if self.is_whole:
            return f"{found} and whole"
        return f"{found}, but only {self.cycles} of {self.wanted}"

    @property
    def status(self) -> int:
        """Exit status: 0 if no guarantee was broken, and all was done or a time limit was given."""
        if self.violations:
            return EXIT_BROKEN
        is_enough = self.is_whole or self.budget.seconds_max is not None
        return 0 if self.is_well and is_enough else EXIT_NOT_WHOLE

    def is_wanting(self) -> bool:
        """Return whether another cycle is due."""
        limit = self.budget.seconds_max
        is_late = limit is not None and time.monotonic() - self._began > limit
        return self.cycles < self.wanted and not is_late

    def as_json(self) -> dict[str, Any]:
        """Return the summary as the JSON object that is printed."""
        return {
            "campaign": self.name,
            "is_well": self.is_well,
            "is_whole": self.is_whole,
            "result": self.result,
            "seed": self.budget.seed,
            "cycles": self.cycles,
            "cycles_wanted": self.wanted,
            "seconds": round(time.monotonic() - self._began, 1),
            "counts": dict(sorted(self.counts.items())),
            "violations": len(self.violations),
            "examples": self.violations[:VIOLATIONS_SHOWN_MAX],
        } | {
            name: value
            for name, value in (("notes", self.notes), ("skipped", self.skipped))
            if value
        }
