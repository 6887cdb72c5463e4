"""The right that a change of a ledger's metadata needs. Pure.

Leaves the rights of a client to `metadata.security.ledger_roles`, and the changes themselves to
`metadata.ledgers.ledger_metadata`: each is compared with the result of its transition.

Invariants: nothing changes what decides rights (the id, the owner and the chain), nor what never
changes of a ledger; a state only moves forward. Only claiming removes the mark of a ledger without
a writer, and no change adds it: a second writer would use the nonces of the first one again.

Source: protocol rules 1.5, 5.1, 6.1, 7.1, 7.5, 9.1 and 12.2.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from metadata.errors import InvalidTransitionError
from metadata.ledgers.chain import CHAIN_NAME
from metadata.ledgers.ledger_metadata import UNCLAIMED_NAME, LedgerMetadata, LedgerState
from metadata.security.ledger_roles import LedgerFacts, LedgerRight

COPY: Final = LedgerRight.APPEND | LedgerRight.RECOVERY_ADD
RECOVERY: Final = LedgerRight.FENCE | LedgerRight.RECOVERY_ADD
_ORDER: Final = tuple(LedgerState)

_Transition = Callable[[], LedgerMetadata]


def facts_of(metadata: LedgerMetadata) -> LedgerFacts:
    """Return what decides rights on a ledger."""
    chain = metadata.custom.get(CHAIN_NAME, "")
    return LedgerFacts(metadata.ledger_id, metadata.owner, chain if isinstance(chain, str) else "")


def right_for(old: LedgerMetadata, new: LedgerMetadata) -> LedgerRight | None:
    """Return the right that a change needs; None if no client may make it."""
    if _is_claim(old, new):
        return LedgerRight.APPEND
    if not _keeps_identity(old, new):
        return None
    for right, transition in _transitions(old, new):
        try:
            if transition() == new:
                return right
        except InvalidTransitionError:
            continue
    return LedgerRight.MANAGE


def _keeps_identity(old: LedgerMetadata, new: LedgerMetadata) -> bool:
    return _fixed(old) == _fixed(new) and _ORDER.index(old.state) <= _ORDER.index(new.state)


def _fixed(metadata: LedgerMetadata) -> tuple[object, ...]:
    return (
        metadata.ledger_id,
        metadata.owner,
        metadata.custom,
        metadata.created_ms,
        metadata.creation_token,
        metadata.quorum,
        metadata.digest,
        metadata.encryption,
    )


def _transitions(
    old: LedgerMetadata, new: LedgerMetadata
) -> Iterator[tuple[LedgerRight, _Transition]]:
    token, last = new.update_token, new.last_fragment
    first = last.first_entry_id
    yield LedgerRight.APPEND, lambda: old.with_ensemble_change(first, last.ensemble, token)
    yield RECOVERY, lambda: old.with_recovery_begun(token)
    if new.last_entry_id is not None and new.length is not None:
        end, length = new.last_entry_id, new.length
        changed = tuple(
            part
            for part in new.fragments
            if part.first_entry_id >= old.last_fragment.first_entry_id
        )
        yield LedgerRight.APPEND, lambda: old.with_closed(end, length, token)
        yield RECOVERY, lambda: old.with_recovered(changed, end, length, token)
    if old.state is LedgerState.OPEN and len(old.fragments) == len(new.fragments):
        for index, fragment in enumerate(new.fragments):
            if fragment != old.fragments[index]:
                yield COPY, lambda: old.with_fragment(index, fragment, token)  # noqa: B023 - called at once


def _is_claim(old: LedgerMetadata, new: LedgerMetadata) -> bool:
    """Return whether a change gives a ledger without a writer one, and removes its mark."""
    custom = {name: text for name, text in old.custom.items() if name != UNCLAIMED_NAME}
    claimed = replace(old, custom=custom, writer=new.writer, update_token=new.update_token)
    return old.is_unclaimed and new == claimed
