"""Decisions about the requests of one client: reads and writes. Pure.

Leaves the rules of each part of the tree to the modules beside it, and reading what they need to
`quire.gateway.requests`.

Invariants: the kinds that clients may change, by the register (`metadata.paths`), have one rule
each, and no other kind has one; what no rule allows is refused; a multi is allowed only if each of
its operations is; a secret is read by super users alone.

Source: docs/security.md, "A gateway for clients".
"""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from metadata.paths import (
    CHAINS,
    CHOSEN_IDS,
    CLIENTS,
    DELETED,
    LEDGER_IDS,
    LEDGERS,
    Right,
    chain_creation_path,
    chain_owner_path,
    chain_path,
    client_rights,
    root_of,
)
from metadata.store.interface import (
    MULTI_OPERATIONS_MAX,
    Check,
    CompareAndSet,
    Create,
    Delete,
    Operation,
)
from quire.gateway.rights.chain_rules import chain_name_of, decide_chain
from quire.gateway.rights.id_rules import (
    decide_chosen,
    decide_counter,
    decide_deletion,
    decide_registration,
)
from quire.gateway.rights.ledger_rules import decide_ledger
from quire.gateway.rights.verdict import (
    ALLOWED,
    Allowed,
    Known,
    Needed,
    Refused,
    Subject,
    Verdict,
    no_rule,
)

PARENTS: Final = (LEDGERS, CHAINS)
"""Nodes that a client may create empty, so that its own nodes have a parent."""

Rule = Callable[[Subject, Operation, Sequence[Operation], Known], Verdict]
"""Decides about one operation of several."""

RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {
        LEDGERS: decide_ledger,
        CHAINS: decide_chain,
        LEDGER_IDS: decide_counter,
        CHOSEN_IDS: decide_chosen,
        DELETED: decide_deletion,
        CLIENTS: decide_registration,
    }
)
"""Rules by the roots of their kinds."""


def decide_read(subject: Subject, path: str) -> Refused | None:
    """Return the refusal of a read, or a watch; None if it is allowed."""
    if subject.is_super or Right.READ in client_rights(path):
        return None
    return no_rule(subject, path, "read this node")


def needed_for(operations: Sequence[Operation]) -> Needed:
    """Return what must be read to decide about operations."""
    names: dict[str, None] = {}
    values: dict[str, None] = {}
    for operation in operations:
        if operation.path.startswith(f"{CHAINS}/") and not isinstance(operation, Check):
            name = chain_name_of(operation.path)
            if name:
                names[chain_creation_path(name)] = None
                values[chain_owner_path(name)] = None
                values[chain_path(name)] = None
        is_pinned = isinstance(operation, CompareAndSet | Delete)
        if is_pinned or (isinstance(operation, Check) and operation.path == LEDGER_IDS):
            values[operation.path] = None
    return Needed(tuple(names), tuple(values))


def decide_writes(subject: Subject, operations: Sequence[Operation], known: Known) -> Verdict:
    """Decide about a multi, or a single write."""
    if subject.is_super:
        return ALLOWED
    pins: dict[Operation, None] = {}
    added: list[Operation] = []
    block: tuple[int, int] | None = None
    for operation in operations:
        verdict = _decide(subject, operation, operations, known)
        if not isinstance(verdict, Allowed):
            return verdict
        pins |= dict.fromkeys(verdict.pins)
        added += verdict.added
        block = verdict.block or block
    if len(operations) + len(pins) + len(added) > MULTI_OPERATIONS_MAX:
        what = f"change so much in one step: with checks, it has over {MULTI_OPERATIONS_MAX} parts"
        return no_rule(subject, operations[0].path, what)
    return Allowed(tuple(pins), tuple(added), block)


def _decide(
    subject: Subject, operation: Operation, operations: Sequence[Operation], known: Known
) -> Verdict:
    path = operation.path
    if isinstance(operation, Check):
        return decide_read(subject, path) or ALLOWED
    changes = sum(change.path == path for change in operations if not isinstance(change, Check))
    if changes > 1 and not path.startswith(f"{CHOSEN_IDS}/"):
        # Only the record of an allocated id is made and removed in one step.
        return no_rule(subject, path, "change a node twice in one step")
    if path in PARENTS and operation == Create(path, b"") and subject.principal:
        return ALLOWED
    rule = None if path in PARENTS else RULES.get(root_of(path))
    if rule is None:
        return no_rule(subject, path, "change this node")
    return rule(subject, operation, operations, known)
