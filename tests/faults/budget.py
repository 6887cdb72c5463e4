"""Says how much of a fault campaign is wanted, and what came of it.

Leaves the campaigns to their modules. Each has `run(budget) -> Summary`.

Format of a printed summary: one JSON object; `is_well` says whether every promise was kept of what
was done, and is false of a campaign that was skipped; `result` tells how much that was.
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
    """What is asked of a campaign."""

    size: str = SMALL
    seed: int = 1
    seconds_max: float | None = None
    """Begin no further cycle after so long; none: all cycles are done."""

    def cycles(self, *, small: int, full: int) -> int:
        """Return how many cycles to do."""
        return full if self.size == FULL else small


@dataclass(slots=True)
class Summary:
    """What one campaign did and found."""

    name: str
    budget: Budget
    wanted: int
    cycles: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What is to be seen besides: not broken promises."""
    skipped: str = ""
    """Why this machine cannot run it; empty when it ran."""
    _began: float = field(default_factory=time.monotonic)

    @property
    def is_well(self) -> bool:
        """Whether it ran, and every promise was kept."""
        return not self.violations and not self.skipped

    @property
    def is_whole(self) -> bool:
        """Whether all that was wanted was done."""
        return not self.skipped and self.cycles >= self.wanted

    @property
    def result(self) -> str:
        """Say what came of it, and of how much of what was wanted."""
        if self.skipped:
            return f"skipped, 0 of {self.wanted}"
        found = "broken promises" if self.violations else "clean"
        if self.is_whole:
            return f"{found} and whole"
        return f"{found}, but only {self.cycles} of {self.wanted}"

    @property
    def status(self) -> int:
        """The exit status: 0 for what is clean and whole, or was cut short by the time given."""
        if self.violations:
            return EXIT_BROKEN
        is_enough = self.is_whole or self.budget.seconds_max is not None
        return 0 if self.is_well and is_enough else EXIT_NOT_WHOLE

    def is_wanting(self) -> bool:
        """Tell whether another cycle is to be done."""
        limit = self.budget.seconds_max
        is_late = limit is not None and time.monotonic() - self._began > limit
        return self.cycles < self.wanted and not is_late

    def as_json(self) -> dict[str, Any]:
        """Return what is printed."""
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
