"""Checks of single steps of in-sync mode: changes of the stored set, and confirmations.

Leaves the rules for every world to `in_sync_checks`.

A spare may replace a member that failed and could not leave. The number of members stays the same,
and at least one of those that hold every entry stays. Only such a change may leave fewer of them
than `min_in_sync`; nothing is confirmed until enough have caught up.

Source: protocol rules 11.2-11.4.
"""

from ledger_client.protocol.append import AppendProtocol
from metadata.ledgers.ledger_metadata import LedgerMetadata, LedgerState
from tests.model.words import ViolationError


def check_members(before: LedgerMetadata, after: LedgerMetadata, *, is_copy: bool = False) -> None:
    """Raise ViolationError unless the set may change so; `is_copy`: by a copier's swap."""
    if not after.quorum.is_in_sync or after.state is not LedgerState.OPEN:
        return
    held, holds = len(before.in_sync_members), len(after.in_sync_members)
    if not holds:
        raise ViolationError("the last in-sync member leaves")
    if holds >= min(held, after.quorum.min_in_sync):
        return
    if is_copy:
        raise ViolationError(f"a swap takes a member out of the set: {holds} are in sync")
    if len(after.last_fragment.ensemble) < len(before.last_fragment.ensemble):
        raise ViolationError(f"the set shrinks to {holds} in sync")


def check_confirmed(stored: LedgerMetadata, writer: AppendProtocol | None) -> None:
    """Raise ViolationError if an entry was confirmed with too few members in sync."""
    if not stored.quorum.is_in_sync or writer is None or stored.state is not LedgerState.OPEN:
        return
    in_sync = [b for b in stored.in_sync_members if not writer._health.is_out(b)]
    if len(in_sync) < stored.quorum.min_in_sync:
        raise ViolationError(f"confirmed with {len(in_sync)} members in sync")
