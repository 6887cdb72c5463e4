"""Says how much of a fault campaign is wanted, and what came of it.

Leaves the campaigns to their modules. Each has `run(budget) -> Summary`.

Format of a printed summary: one JSON object; `is_well` says whether every promise was kept.
"""

import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

SMALL: Final = "small"
FULL: Final = "full"
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
        """Whether every promise was kept."""
        return not self.violations

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
