"""List of all seeded bugs.

Leaves the patches to the modules of `families`.

Invariant: names are unique.
"""

from typing import Final

from tests.seeded_bugs.families import (
    append,
    availability,
    bookie_fences,
    bookie_log,
    chains,
    deletion,
    identity,
    in_sync,
    metadata,
    reading,
    recovery,
    recovery_close,
    repair,
    topics_groups,
    topics_logs,
    topics_state,
)
from tests.seeded_bugs.seeded_bug import SeededBug

FAMILIES: Final = (
    append,
    availability,
    recovery,
    recovery_close,
    metadata,
    bookie_fences,
    bookie_log,
    deletion,
    identity,
    reading,
    in_sync,
    chains,
    repair,
    topics_logs,
    topics_state,
    topics_groups,
)
BUGS: Final[tuple[SeededBug, ...]] = tuple(bug for family in FAMILIES for bug in family.BUGS)
