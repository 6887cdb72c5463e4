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
    keyless,
    limbo,
    losses,
    many_ledgers,
    metadata,
    missing,
    placement,
    reach,
    reading,
    recovery,
    recovery_close,
    repair,
    repair_jobs,
    restoring,
    reviewed,
    roles,
    scrub,
    topics_groups,
    topics_logs,
    topics_state,
    zookeeper_servers,
)
from tests.seeded_bugs.families.security import (
    bookie_logins,
    bookie_quotas,
    gateways,
    guards,
    logins,
    quotas,
    rights,
    stored,
    tokens,
    transport,
)
from tests.seeded_bugs.seeded_bug import SeededBug

SECURITY: Final = (
    transport,
    logins,
    bookie_logins,
    tokens,
    rights,
    guards,
    stored,
    gateways,
    quotas,
    bookie_quotas,
)
"""Families of security, whose rules are sections of documents, RFCs and known vulnerabilities."""

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
    *restoring.BUGS,
    *repair.BUGS,
    *repair_jobs.BUGS,
    *limbo.BUGS,
    *keyless.BUGS,
    *losses.BUGS,
    *roles.BUGS,
    *scrub.BUGS,
    *missing.BUGS,
    *topics_logs.BUGS,
    *topics_state.BUGS,
    *topics_groups.BUGS,
    *(bug for family in SECURITY for bug in family.BUGS),
)
