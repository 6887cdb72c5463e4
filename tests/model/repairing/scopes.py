"""List of the configurations of repair.

Leaves the exploration to `tests.model.search`.

Covered: E=WQ=2, a striped ledger (E=3, WQ=2), one to three entries, an empty ledger, an open ledger
with a writer that changes its ensemble and closes, or that a client recovers; one or two workers on
the same ledger at once, killed at any step; bookies that lose their session, stop, return or are
gone for good; a drain that is begun, ended and begun again; a removal; the collectors of all
bookies; a deletion.

Not covered: which bookie the placement chooses, several ledgers, in-sync ledgers, the choice to
recover an open ledger (unit tests), batches and digests.
"""

from dataclasses import replace
from typing import Final

from metadata.ledgers.ledger_metadata import QuorumSpec
from tests.model.repairing.words import RepairScope

PAIR: Final = QuorumSpec(2, 2, 2)
STRIPED: Final = QuorumSpec(3, 2, 2, 1)

LOST: Final = RepairScope("repair, a lost bookie", PAIR, bookies=3, deaths=1, kills=1)
RETURNED: Final = RepairScope(
    "repair, a bookie returns", PAIR, bookies=3, crashes=1, kills=1, abandons=1
)
TWO_WORKERS: Final = RepairScope(
    "repair, two workers", PAIR, bookies=4, workers=2, crashes=1, kills=1
)
DRAINED: Final = RepairScope(
    "repair, a drain", PAIR, bookies=4, drains=1, removes=1, kills=1, mortals=(0, 2)
)
EMPTY: Final = replace(DRAINED, name="repair, a drain, empty", is_empty=True)
OPEN: Final = RepairScope(
    "repair, an open ledger",
    PAIR,
    is_open=True,
    bookies=4,
    crashes=1,
    changes=1,
    is_written=True,
    deletes=1,
)
RECOVERED: Final = replace(
    OPEN,
    name="repair, a recovery",
    changes=0,
    is_written=False,
    is_recovered=True,
    kills=1,
)
TWO_DRAINS: Final = RepairScope(
    "repair, two drains, two workers",
    PAIR,
    bookies=4,
    workers=2,
    drains=2,
    undrains=1,
    removes=1,
    mortals=(0, 2),
)
PARTITIONED: Final = RepairScope(
    "repair, drains, a partition",
    PAIR,
    bookies=4,
    partitions=1,
    drains=2,
    removes=1,
    mortals=(0, 2),
)
STRIPES: Final = RepairScope(
    "repair, stripes, two workers",
    STRIPED,
    entries=3,
    bookies=5,
    workers=2,
    crashes=1,
    deaths=1,
    kills=1,
    mortals=(0, 1),
)

SMALL: Final = (LOST, RETURNED)
"""`CI` and `FULL` are what the larger scopes have besides."""
CI: Final = (TWO_WORKERS, DRAINED, EMPTY, OPEN, RECOVERED, PARTITIONED)
FULL: Final = (TWO_DRAINS, STRIPES)
