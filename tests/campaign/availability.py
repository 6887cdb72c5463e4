"""Decision whether the faults of a campaign explain the errors that its writer gave. Pure.

Leaves the faults to `faults`, and the history to `history`.

A campaign keeps more bookies healthy than an ensemble needs, and ZooKeeper is never away for long.
With several ZooKeeper servers, only the time without a quorum of them is a fault of ZooKeeper.
So a writer ends only where too many bookies had a fault at a time, and no recovery fences a ledger
that a living writer has. Errors of recoveries are repeated by the writer, and not judged here.

Source: protocol rules 4.7, 5.5 and 11.4; invariant "every writer with enough bookies progresses".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.campaign.history import WriterError

RECOVERING: Final = "recover"
SETTLED_S: Final = 20.0
"""Time after the end of a fault, in seconds, within which a bookie is registered again, or a member
has caught up.
"""
DEADLINE_S: Final = 30.0
"""Time limit of an append, and of a call of the metadata service."""
ZOOKEEPER: Final = "zookeeper"


@dataclass(frozen=True, slots=True)
class FaultTime:
    """One fault of a bookie, by its id, or of ZooKeeper; times are those of the wall clock."""

    part: str
    began: float
    ended: float


@dataclass(frozen=True, slots=True)
class Setting:
    """Sizes of a campaign."""

    bookies: int
    ensemble: int
    min_in_sync: int | None
    """In-sync mode; None for ordinary ledgers."""


def unexplained(
    errors: Sequence[WriterError], faults: Sequence[FaultTime], setting: Setting
) -> list[str]:
    """Return a complaint for each error that no fault explains."""
    judged = [error for error in errors if error.doing != RECOVERING]
    return [
        f"ledger {error.ledger_id}: {error.doing} failed without need: {error.error}: {error.text}"
        for error in judged
        if not is_explained(error, faults, setting)
    ]


def is_explained(error: WriterError, faults: Sequence[FaultTime], setting: Setting) -> bool:
    """Return whether a fault explains an error."""
    match error.error:
        case "NotEnoughBookiesError":
            hit = hit_within(faults, error.at - SETTLED_S, error.at)
            return ZOOKEEPER in hit or _bookies(hit) > setting.bookies - setting.ensemble - 1
        case "MetadataUnavailableError":
            return ZOOKEEPER in hit_within(faults, error.at - DEADLINE_S - SETTLED_S, error.at)
        case "NotEnoughInSyncReplicasError":
            return _lacks_members(hit_within(faults, error.at - SETTLED_S, error.at), setting)
        case "QuorumTimeoutError":
            hit = hit_within(faults, error.at - DEADLINE_S - SETTLED_S, error.at)
            return setting.min_in_sync is not None and _lacks_members(hit, setting)
        case _:
            return False


def hit_within(faults: Sequence[FaultTime], began: float, ended: float) -> list[str]:
    """Return the parts that had a fault at some moment of a time."""
    hit = [fault.part for fault in faults if fault.began <= ended and fault.ended >= began]
    return list(dict.fromkeys(hit))


def _bookies(hit: Sequence[str]) -> int:
    return sum(each != ZOOKEEPER for each in hit)


def _lacks_members(hit: Sequence[str], setting: Setting) -> bool:
    """Return whether so many bookies had a fault that too few members may have been in sync."""
    if setting.min_in_sync is None:
        return False
    return ZOOKEEPER in hit or _bookies(hit) > setting.ensemble - setting.min_in_sync
