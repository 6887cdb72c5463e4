"""Who may create, change and delete the nodes of ledgers. Pure.

Leaves which right a change needs to `ledger_changes.py`.

Invariants: a client creates ledgers of its own only, under an id that its session allocated or that
was never used; so no client gets the id of another's ledger, also after a deletion.

Source: protocol rules 10.1, 10.2, 12.2 and 12.3.
"""

from collections.abc import Sequence
from typing import Final

from metadata.errors import MetadataFormatError, NodeExistsError
from metadata.ids import LedgerId, Version
from metadata.ledgers.codec import decode_ledger_metadata
from metadata.ledgers.ledger_ids import FIRST_ID
from metadata.ledgers.ledger_metadata import LedgerState
from metadata.paths import (
    LEDGER_IDS,
    LEVEL_DIGITS,
    chosen_id_path,
    is_level_name,
    ledger_id_of,
    ledger_path,
)
from metadata.security.ledger_roles import LedgerRight, LedgerRole, rights_of
from metadata.store.interface import Check, CompareAndSet, Create, Delete, Operation
from metadata.store.number_blocks import unpack_block
from quire.gateway.rights.ledger_changes import facts_of, right_for
from quire.gateway.rights.verdict import (
    ALLOWED,
    Impossible,
    Known,
    Refused,
    Subject,
    Verdict,
    at_version,
    no_role,
    no_rule,
)

_ROLES: Final = (
    (LedgerRight.APPEND, LedgerRole.WRITER),
    (LedgerRight.FENCE | LedgerRight.RECOVERY_ADD, LedgerRole.RECOVERER),
)


def decide_ledger(
    subject: Subject, operation: Operation, operations: Sequence[Operation], known: Known
) -> Verdict:
    """Decide about a change at a node below LEDGERS."""
    path = operation.path
    names = path.split("/")[2:]
    is_level = len(names) <= len(LEVEL_DIGITS) and all(
        is_level_name(level, name) for level, name in enumerate(names)
    )
    if not (names and is_level and subject.principal):
        return no_rule(subject, path, "create, change or delete this node")
    if len(names) < len(LEVEL_DIGITS):
        return _decide_level(subject, operation)
    ledger_id = ledger_id_of(names)
    if ledger_id is None:
        return no_rule(subject, path, "use this path, which is that of no ledger")
    match operation:
        case Create(_, value, ephemeral):
            if ephemeral:
                return no_rule(subject, path, "create a ledger that ends with its session")
            return _decide_creation(subject, ledger_id, value, operations, known)
        case CompareAndSet(_, value, expected):
            return _decide_change(subject, ledger_id, value, expected, known)
        case Delete(_, expected):
            return _decide_change(subject, ledger_id, None, expected, known)
        case Check():
            return ALLOWED


def _decide_level(subject: Subject, operation: Operation) -> Verdict:
    """Every client may create and remove empty nodes above ledgers."""
    match operation:
        case Create(_, b"", False) | Delete(_, 0) | Check():
            return ALLOWED
        case _:
            return no_rule(subject, operation.path, "store a value above ledgers")


def _decide_creation(
    subject: Subject,
    ledger_id: LedgerId,
    value: bytes,
    operations: Sequence[Operation],
    known: Known,
) -> Verdict:
    path = ledger_path(ledger_id)
    try:
        new = decode_ledger_metadata(value, path)
    except MetadataFormatError as error:
        return no_rule(subject, path, f"store other than the metadata of a ledger ({error.why})")
    if new.ledger_id != ledger_id or new.state is not LedgerState.OPEN:
        return no_rule(subject, path, "create another ledger than a new one with this id")
    if new.owner != subject.principal:
        return Refused(
            path,
            f"{subject.name} may not create a ledger with the owner {new.owner!r}: it must own it. "
            "If the owner is empty, set `authorizer` of the bookies to `record` or `enforce`, so "
            "that clients learn their principals; else use the same tls_principal_rules for "
            "bookies and gateways",
        )
    return _decide_id(subject, ledger_id, operations, known)


def _decide_id(
    subject: Subject, ledger_id: LedgerId, operations: Sequence[Operation], known: Known
) -> Verdict:
    """Decide whether the id was never used, and cannot be used again (rule 10.2)."""
    path, chosen = ledger_path(ledger_id), chosen_id_path(ledger_id)
    is_chosen = any(isinstance(part, Create) and part.path == chosen for part in operations)
    is_removed = any(isinstance(part, Delete) and part.path == chosen for part in operations)
    if is_chosen and is_removed:
        # The ids of a block that another session allocated may have been used.
        return ALLOWED if subject.has_id(ledger_id) else Impossible(NodeExistsError(path))
    counter = next(
        (part for part in operations if isinstance(part, Check) and part.path == LEDGER_IDS), None
    )
    if not is_chosen or counter is None:
        return no_rule(subject, path, "use an id without a record that it is used")
    stored = at_version(known, LEDGER_IDS, counter.expected)
    if isinstance(stored, Impossible):
        return stored
    try:
        free = unpack_block(LEDGER_IDS, stored.value, FIRST_ID)
    except MetadataFormatError as error:
        return Impossible(error)
    is_allocated = FIRST_ID <= ledger_id < free
    return Impossible(NodeExistsError(LEDGER_IDS)) if is_allocated else ALLOWED


def _decide_change(
    subject: Subject, ledger_id: LedgerId, value: bytes | None, expected: Version, known: Known
) -> Verdict:
    """Decide about a change, or a deletion if `value` is None, of what is stored at a version."""
    path = ledger_path(ledger_id)
    stored = at_version(known, path, expected)
    if isinstance(stored, Impossible):
        return stored
    try:
        old = decode_ledger_metadata(stored.value, path)
        new = None if value is None else decode_ledger_metadata(value, path)
    except MetadataFormatError as error:
        return no_rule(subject, path, f"change what this gateway cannot read ({error.why})")
    if old.ledger_id != ledger_id:
        return no_rule(subject, path, "change the metadata of another ledger")
    needed = LedgerRight.MANAGE if new is None else right_for(old, new)
    if needed is None:
        return no_rule(subject, path, "change the id, owner, chain, kind or state of a ledger so")
    if needed & ~rights_of(subject.principal, subject.granted, facts_of(old)):
        what = "delete" if new is None else "change the metadata of"
        role = next((role for right, role in _ROLES if right == needed), LedgerRole.ADMIN)
        return no_role(subject, path, f"{what} ledger {ledger_id} so", role, f"ledger:{ledger_id}")
    return ALLOWED
