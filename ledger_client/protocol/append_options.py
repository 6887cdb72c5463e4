"""User options of the append protocol."""

from dataclasses import dataclass
from typing import Final

UNANSWERED_BYTES_MAX: Final = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class AppendOptions:
    """How one writer keeps its ensemble, and how many unanswered bytes a bookie may have."""

    delay_ensemble_change: bool = False
    run_degraded: bool = False
    unanswered_bytes_max: int = UNANSWERED_BYTES_MAX
    fixed_membership: bool = False
    """Never change the ensemble: wait for its members. Only for comparison, not for use."""
