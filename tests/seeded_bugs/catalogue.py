"""List of all seeded bugs, and of those that the code cannot have yet.

Leaves the patches to the modules of `families`.

Invariant: names are unique.
"""

from typing import Final

from tests.seeded_bugs.families import (
    append,
    availability,
    beyond,
    bookie_fences,
    bookie_index,
    bookie_log,
    bookie_start,
    chains,
    cleaning,
    identity,
    in_sync,
    in_sync_copies,
    many_ledgers,
    metadata,
    placement,
    reach,
    reading,
    recovery,
    recovery_close,
    reviewed,
    topics_groups,
    topics_logs,
    topics_state,
    zookeeper_servers,
)
from tests.seeded_bugs.seeded_bug import SeededBug

BUGS: Final[tuple[SeededBug, ...]] = (
    *append.BUGS,
    *availability.BUGS,
    *recovery.BUGS,
    *recovery_close.BUGS,
    *metadata.BUGS,
    *zookeeper_servers.BUGS,
    *placement.BUGS,
    *bookie_fences.BUGS,
    *bookie_log.BUGS,
    *bookie_start.BUGS,
    *bookie_index.BUGS,
    *cleaning.BUGS,
    *identity.BUGS,
    *reading.BUGS,
    *in_sync.BUGS,
    *in_sync_copies.BUGS,
    *many_ledgers.BUGS,
    *reviewed.BUGS,
    *beyond.BUGS,
    *chains.BUGS,
    *reach.BUGS,
    *topics_logs.BUGS,
    *topics_state.BUGS,
    *topics_groups.BUGS,
)

LEFT_OUT: Final = {
    "repair of an open ledger's last fragment": "there is no repair yet (rule 9.1)",
    "collection while a repair copies": "there is no repair yet (rules 9.1, 10.1)",
    "a live writer fenced by repair": "there is no repair yet (rule 9.2)",
}
"""Known bugs that no patch to this code can cause, and the reasons."""
