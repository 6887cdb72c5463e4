"""Decides who a peer is and what it may do; for now everybody may do everything.

Leaves a ledger's own password to the storage, which compares master keys.

Source: metadata design, "Versions and security".
"""

from enum import StrEnum
from typing import NewType

from metadata.ids import LedgerId

Principal = NewType("Principal", str)

ANONYMOUS = Principal("anonymous")


class Operation(StrEnum):
    """What can be allowed or refused for a ledger."""

    ADD = "add"
    RECOVERY_ADD = "recovery_add"
    FENCE = "fence"
    READ = "read"
    WRITE_LAC = "write_lac"


def authenticate(credentials: bytes) -> Principal | None:
    """Return whom the credentials of a hello prove; None: nobody, and the connection is refused."""
    del credentials  # none are issued yet: any are accepted and prove nothing
    return ANONYMOUS


def authorize(principal: Principal, operation: Operation, ledger_id: LedgerId) -> bool:
    """Return whether `principal` may do this to that ledger; called for every operation."""
    del principal, operation, ledger_id  # there are no rules yet
    return True
