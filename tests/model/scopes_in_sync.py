"""List of the configurations of in-sync mode to explore.

Leaves those of quorum mode, and the sums, to `scopes`.

Covered: two and three members with `min_in_sync` 1 to 3; members that fail, really or not, or lag,
one or two after the other, answer again, return and catch up; a spare that replaces a member; a
bookie that dies for good; one or two recoverers at the same time, abandoned requests, unknown
outcomes.

Source: protocol section 11.
"""

from dataclasses import replace
from typing import Final

from metadata.ledgers.ledger_metadata import QuorumMode, QuorumSpec
from tests.model.words import Scope


def in_sync(members: int, min_in_sync: int) -> QuorumSpec:
    """Return the quorum of an in-sync ledger."""
    return QuorumSpec(members, members, members, mode=QuorumMode.IN_SYNC, min_in_sync=min_in_sync)


LEAVE_OF_THREE: Final = Scope(
    "in sync 3/2, one leaves",
    in_sync(3, 2),
    spares=0,
    failures=1,
    suspects=(0,),
    kinds=("gone", "suspected", "lagging"),
    unknowns=1,
    closes=False,
)
LEAVE_OF_TWO: Final = replace(
    LEAVE_OF_THREE, name="in sync 2/1, one leaves, closes", quorum=in_sync(2, 1), closes=True
)
BOTH_WANTED: Final = replace(
    LEAVE_OF_THREE, name="in sync 2/2, one leaves", quorum=in_sync(2, 2), entries=2
)
TWO_LEAVE: Final = replace(
    LEAVE_OF_THREE,
    name="in sync 3/2, two leave",
    entries=1,
    failures=2,
    suspects=(0, 1),
    kinds=("gone", "lagging"),
    unknowns=0,
)
ONE_DIES: Final = Scope("in sync 3/2, one dies", in_sync(3, 2), spares=0, crashes=1, closes=False)
DIES: Final = Scope(
    "in sync 3/2, one dies, one leaves",
    in_sync(3, 2),
    entries=1,
    spares=1,
    failures=1,
    suspects=(1,),
    crashes=1,
    closes=False,
)
TWO_DIE: Final = replace(
    DIES, name="in sync 3/2, two die, a spare", failures=0, crashes=2, mortals=(0, 1)
)
DIES_OF_TWO: Final = replace(
    DIES,
    name="in sync 2/1, 3 entries, one dies",
    quorum=in_sync(2, 1),
    entries=3,
    spares=0,
    suspects=(0, 1),
)
SPARE_OF_TWO: Final = replace(
    DIES,
    name="in sync 2/1, a spare, two leave",
    quorum=in_sync(2, 1),
    entries=2,
    failures=2,
    suspects=(0, 1),
    crashes=0,
)
SPARE_UNKNOWN: Final = replace(
    SPARE_OF_TWO,
    name="in sync 2/1, a spare, unknown",
    entries=1,
    kinds=("gone", "suspected", "lagging"),
    unknowns=1,
)
THREE_LEAVE: Final = replace(
    SPARE_OF_TWO,
    name="in sync 2/1, a spare, three leave",
    entries=1,
    failures=3,
    suspects=(0, 1, 2),
)
LONE: Final = Scope(
    "in sync 2/1, recovery",
    in_sync(2, 1),
    entries=2,
    spares=0,
    recoverers=1,
    silences=1,
    suspects=(0,),
    closes=False,
    waits=False,
)
LONE_LEAVES: Final = replace(LONE, name="in sync 2/1, one leaves, recovery", entries=1, failures=1)
LONE_COPIED: Final = replace(LONE, name="in sync 2/1, catching up, recovery", failures=1)
LONE_DIES: Final = replace(
    LONE_LEAVES,
    name="in sync 2/1, recovery, one dies",
    crashes=1,
    suspects=(1,),
    silences=0,
)
LONE_TWICE: Final = replace(LONE, name="in sync 2/1, two recoveries", entries=1, recoverers=2)
LONE_SPARE: Final = replace(
    LONE_COPIED, name="in sync 2/1, spare, recovery", spares=1, states_max=300_000, walks=2_000
)
LONE_UNKNOWN: Final = replace(
    LONE_LEAVES, name="in sync 2/1, recovery, unknown", silences=0, unknowns=1
)
THREE_OF_TWO: Final = Scope(
    "in sync 3/1, 2 entries, recovery",
    in_sync(3, 1),
    spares=0,
    recoverers=1,
    failures=2,
    suspects=(0, 1),
    closes=False,
    waits=False,
    states_max=300_000,
    walks=2_000,
)
THREE_CUT: Final = replace(
    THREE_OF_TWO, name="in sync 3/1, recovery, cut", states_max=40_000, walks=500
)
THREE_WANTED: Final = replace(
    THREE_OF_TWO,
    name="in sync 3/2, every fault",
    quorum=in_sync(3, 2),
    spares=1,
    recoverers=2,
    kinds=("gone", "suspected", "lagging"),
    suspects=(0, 1, 2),
    silences=1,
    unknowns=1,
    crashes=1,
    states_max=600_000,
    walks=2_000,
)
LONE_DAMAGED: Final = replace(
    LONE_LEAVES, name="in sync 2/1, damage, recovery", silences=0, failures=0, damages=1
)
ALL_OF_THREE: Final = replace(
    DIES, name="in sync 3/3, one dies, a spare", quorum=in_sync(3, 3), entries=2, failures=0
)

SMALL: Final = (BOTH_WANTED, ONE_DIES, LONE_DIES)
CI: Final = (
    LEAVE_OF_TWO,
    LEAVE_OF_THREE,
    TWO_LEAVE,
    TWO_DIE,
    DIES_OF_TWO,
    ALL_OF_THREE,
    SPARE_OF_TWO,
    SPARE_UNKNOWN,
    LONE,
    LONE_LEAVES,
    LONE_TWICE,
    LONE_UNKNOWN,
    LONE_DAMAGED,
    THREE_CUT,
    THREE_LEAVE,
)
"""In addition to `SMALL`."""
FULL: Final = (DIES, LONE_COPIED, THREE_OF_TWO, LONE_SPARE, THREE_WANTED)
"""In addition to `SMALL` and `CI`."""
