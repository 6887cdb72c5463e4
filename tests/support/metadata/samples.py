"""The ledger from which many tests start.

Leaves random ledgers to `strategies.py`.
"""

from types import MappingProxyType

from metadata.ids import BookieId, ClientId, EntryId, LedgerId, UpdateToken
from metadata.ledgers.ledger_metadata import (
    DigestType,
    Fragment,
    LedgerMetadata,
    LedgerState,
    QuorumSpec,
)

A, B, C, D, E = (BookieId(f"bookie-{letter}") for letter in "abcde")


def token(number: int) -> UpdateToken:
    """Return a different token for each number."""
    return UpdateToken(number.to_bytes(16, "big"))


def open_ledger(ledger_id: int = 7, *fragments: Fragment) -> LedgerMetadata:
    """Return an open ledger of three bookies, with one fragment unless others are given."""
    return LedgerMetadata(
        ledger_id=LedgerId(ledger_id),
        state=LedgerState.OPEN,
        quorum=QuorumSpec(3, 3, 2),
        fragments=fragments or (Fragment(EntryId(0), (A, B, C)),),
        digest=DigestType.CRC32C,
        created_ms=1_700_000_000_000,
        creation_token=token(1),
        update_token=token(2),
        writer=ClientId("client-1"),
        custom=MappingProxyType({"app": "orders", "key": b"\x00\xff"}),
    )
