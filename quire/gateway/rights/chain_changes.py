"""The right that a change of a chain's head needs. Pure.

Leaves who has which right to `chain_rules.py`, and the changes themselves to
`metadata.ledgers.chain`.

Invariants: a writer of a chain adds one link, and changes nothing else; the mark of a deletion
stays; indices and times only rise.

Source: Spark design, "Writing: exactly once"; docs/security.md, "A gateway for clients".
"""

from dataclasses import replace

from metadata.errors import LedgersCollectedError
from metadata.ledgers.chain import ChainHead, ChainLink
from metadata.security.ledger_roles import LedgerRight


def head_right(old: ChainHead, new: ChainHead) -> LedgerRight | None:
    """Return the right that a change of a head needs; None if no client may make it."""
    if new == old.with_token(new.token):
        # It only makes changes sent earlier fail; each client may complete a deletion.
        return LedgerRight.NONE if old.is_deleted else LedgerRight.APPEND
    if old.is_deleted:
        return None
    if new == replace(old, next_index=old.next_index + 1, token=new.token):
        return LedgerRight.APPEND
    rises = (
        new.first_index >= old.first_index
        and new.next_index in (old.next_index, old.next_index + 1)
        and new.collected_before_ms >= old.collected_before_ms
    )
    return LedgerRight.MANAGE if rises else None


def is_first_head(head: ChainHead) -> bool:
    """Return whether a head is that of a new chain."""
    return head == ChainHead(head.token)


def fits_link(old: ChainHead, new: ChainHead, index: int, link: ChainLink) -> bool:
    """Return whether a link is the one that a change of the head makes room for."""
    if index != old.next_index or link.token != new.token:
        return False
    for replaces in (False, True):
        try:
            if old.with_link(link, replaces=replaces) == new:
                return True
        except LedgersCollectedError:
            return False
    return False
