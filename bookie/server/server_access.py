"""Authentication and authorization of clients. Currently every client may do everything.

Leaves ledger passwords to the storage, which compares master keys.

Source: metadata design, "Versions and security".
"""

from enum import StrEnum
from typing import NewType

from metadata.ids import LedgerId

Principal = NewType("Principal", str)

ANONYMOUS = Principal("anonymous")


class LedgerOperation(StrEnum):
    """Operation on a ledger that can be allowed or refused."""

    ADD = "add"
    RECOVERY_ADD = "recovery_add"
    FENCE = "fence"
    READ = "read"
    WRITE_LAC = "write_lac"


def authenticate(credentials: bytes) -> Principal | None:
    """Return the principal that a hello's credentials prove; None refuses the connection."""
    del credentials  # there are no credentials yet: any are accepted and prove nothing
    return ANONYMOUS


def authorize(principal: Principal, operation: LedgerOperation, ledger_id: LedgerId) -> bool:
    """Return whether `principal` may do an operation on a ledger. Called for every operation."""
    del principal, operation, ledger_id  # there are no rules yet
    return True
