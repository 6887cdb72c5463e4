"""Outcomes of one attempt to repair a ledger.

Leaves the attempt to `repair.ledger_repair`, and what follows from the outcome to `repair.worker`.
"""

import math
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


def describe_shortage(shortage: Shortage) -> str:
    """Return the reason of a repair that lacks bookies."""
    bookies = "bookie" if shortage.needed == 1 else "bookies"
    usable = f"{shortage.seen or 'none'} can be used"
    return f"needs {shortage.needed} more {bookies}, and {usable}{shortage.why}"
