"""Outcomes of one attempt to repair a ledger.

Leaves the attempt to `quire.repair.ledger_repair`, and what follows from the outcome to
`quire.repair.worker`.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ledger_client.bookies.placement_policy import Shortage


@dataclass(frozen=True, slots=True)
class Repaired:
    """The ledger needs nothing more; `copies` fragments were given a bookie."""

    copies: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """The ledger does not exist any more."""


@dataclass(frozen=True, slots=True)
class Blocked:
    """The repair cannot continue until the cluster changes."""

    reason: str


@dataclass(frozen=True, slots=True)
class Postponed:
    """The repair can continue later without any change of the cluster."""

    reason: str
    again_s: float = math.inf
    """Time until it can continue, in seconds, if that is known."""


Outcome = Repaired | Deleted | Blocked | Postponed


def joined(outcomes: Iterable[Outcome | None]) -> Outcome | None:
    """Return the outcome of several parts of one attempt; None if no part has one. What can
    continue without a change comes before what is blocked: a block ends only with a change.
    """
    found = [each for each in outcomes if each is not None]
    return min(found, key=_rank, default=None)


def _rank(outcome: Outcome) -> tuple[int, float]:
    match outcome:
        case Deleted():
            return 0, 0.0
        case Postponed(again_s=again_s):
            return 1, again_s
        case Blocked():
            return 2, 0.0
        case Repaired():
            return 3, 0.0


def describe_shortage(shortage: Shortage) -> str:
    """Return the reason of a repair that lacks bookies."""
    bookies = "bookie" if shortage.needed == 1 else "bookies"
    usable = f"{shortage.seen or 'none'} can be used"
    return f"needs {shortage.needed} more {bookies}, and {usable}{shortage.why}"
