"""Who may create, change and delete the nodes of chains. Pure.

Leaves which right a change of a head needs to `chain_changes.py`.

The client that creates a chain through a gateway owns it: the gateway adds the node of the owner
to the creation. Grants on the chain give the rights of writers and administrators; a chain without
an owner has only these. Once its head says that a chain is deleted, any client may remove the
rest, as the creator of the next chain with this name must.

Invariants: a link, the head that counts it and the batch of its application change in one multi;
a decision holds for one life of the chain: its checks fail once the chain is removed.

Source: Spark design, "Writing: exactly once"; docs/security.md, "A gateway for clients".
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from metadata.errors import InvalidChainNameError, MetadataFormatError, NodeNotFoundError
from metadata.ledgers.chain import (
    APPLIED_CODEC,
    HEAD_CODEC,
    LINK_CODEC,
    ChainHead,
    ChainLink,
    check_chain_name,
)
from metadata.ledgers.chain_creation import CREATION_CODEC
from metadata.ledgers.chain_owner import OWNER_CODEC
from metadata.paths import (
    LINK_LEVEL_DIGITS,
    chain_application_path,
    chain_creation_path,
    chain_life_path,
    chain_owner_path,
    chain_path,
)
from metadata.security.ledger_roles import LedgerRight, LedgerRole, chain_rights_of
from metadata.store.interface import Check, CompareAndSet, Create, Delete, Operation, Stored
from quire.gateway.rights.chain_changes import fits_link, head_right, is_first_head
from quire.gateway.rights.verdict import (
    ALLOWED,
    FIRST_VERSION,
    Allowed,
    Impossible,
    Known,
    Subject,
    Verdict,
    at_version,
    no_role,
    no_rule,
)

APPLICATION_LEVELS: Final = 2


@dataclass(frozen=True, slots=True)
class _Chain:
    """An existing chain, and a client's rights on it."""

    name: str
    head: ChainHead
    stored: Stored
    rights: LedgerRight
    life: tuple[Check, ...]

    @property
    def pins(self) -> tuple[Check, ...]:
        """Checks that fail once the chain is removed."""
        if self.life or not self.head.is_deleted:
            return self.life
        return (Check(chain_path(self.name), self.stored.version),)


def chain_name_of(path: str) -> str:
    """Return the name of the chain that a path below CHAINS belongs to; empty if it has none."""
    name = path.split("/")[2]
    try:
        return check_chain_name(name)
    except InvalidChainNameError:
        return ""


def decide_chain(
    subject: Subject, operation: Operation, operations: Sequence[Operation], known: Known
) -> Verdict:
    """Decide about a change at a node of a chain."""
    path, name = operation.path, chain_name_of(operation.path)
    if not (name and subject.principal) or (isinstance(operation, Create) and operation.ephemeral):
        return no_rule(subject, path, "create, change or delete this node")
    try:
        if _creation_of(name, operations) is not None:
            return _decide_creation(subject, name, operation, operations)
        chain = _existing(subject, name, known)
        if isinstance(chain, Impossible):
            return chain
        return _decide_part(subject, chain, operation, operations, known)
    except MetadataFormatError as error:
        return no_rule(subject, path, f"store or change what cannot be read ({error.why})")


# -- creation


def _creation_of(name: str, operations: Sequence[Operation]) -> Create | None:
    path = chain_path(name)
    return next(
        (part for part in operations if isinstance(part, Create) and part.path == path), None
    )


def _decide_creation(
    subject: Subject, name: str, operation: Operation, operations: Sequence[Operation]
) -> Verdict:
    """Decide about one part of a creation: the head, the token, and the life."""
    path, creation_path = chain_path(name), chain_creation_path(name)
    token = next(
        (
            CREATION_CODEC.unpack(creation_path, part.value)
            for part in operations
            if isinstance(part, Create) and part.path == creation_path
        ),
        None,
    )
    refused = no_rule(subject, operation.path, "create a chain in another way than clients do")
    if token is None:
        return refused
    life_path = chain_life_path(name, token)
    match operation:
        case Create(node, value, _) if node == path and is_first_head(
            HEAD_CODEC.unpack(path, value)
        ):
            if not any(isinstance(one, Create) and one.path == life_path for one in operations):
                return refused
            owner_path = chain_owner_path(name)
            owner = OWNER_CODEC.pack(owner_path, subject.principal)
            return Allowed(added=(Create(owner_path, owner),))
        case Create(node, _, _) if node == creation_path:
            return ALLOWED
        case Create(node, b"", _) if node == life_path:
            return ALLOWED
        case _:
            return refused


# -- existing chains


def _existing(subject: Subject, name: str, known: Known) -> _Chain | Impossible:
    path, owner_path = chain_path(name), chain_owner_path(name)
    stored, owned = known.values.get(path), known.values.get(owner_path)
    if stored is None:
        return Impossible(NodeNotFoundError(path))
    owner = "" if owned is None else OWNER_CODEC.unpack(owner_path, owned.value)
    rights = chain_rights_of(subject.principal, subject.granted, name, owner)
    creation_path = chain_creation_path(name)
    life = tuple(
        Check(f"{creation_path}/{child}", FIRST_VERSION)
        for child in known.names.get(creation_path, ())
    )
    return _Chain(name, HEAD_CODEC.unpack(path, stored.value), stored, rights, life)


def _decide_part(
    subject: Subject,
    chain: _Chain,
    operation: Operation,
    operations: Sequence[Operation],
    known: Known,
) -> Verdict:
    path = operation.path
    names = path.split("/")[3:]
    if not names and isinstance(operation, CompareAndSet):
        return _decide_head(subject, chain, operation, operations)
    if isinstance(operation, Delete):
        return _decide_removal(subject, chain, path, names)
    match names:
        case ["links", *levels] if _are_levels(levels):
            if len(levels) == len(LINK_LEVEL_DIGITS):
                return _decide_link(subject, chain, operation, operations)
            return _decide_inner(subject, chain, operation)
        case ["applications", *levels] if len(levels) < APPLICATION_LEVELS:
            return _decide_inner(subject, chain, operation)
        case ["applications", *levels] if len(levels) == APPLICATION_LEVELS:
            return _decide_applied(subject, chain, operation, operations, known)
        case _:
            return no_rule(subject, path, "create or change this node of a chain")


def _decide_head(
    subject: Subject, chain: _Chain, operation: CompareAndSet, operations: Sequence[Operation]
) -> Verdict:
    if chain.stored.version != operation.expected:
        refused = at_version(
            Known({operation.path: chain.stored}), operation.path, operation.expected
        )
        assert isinstance(refused, Impossible), "the version differs"
        return refused
    new = HEAD_CODEC.unpack(operation.path, operation.value)
    needed = head_right(chain.head, new)
    if needed is None:
        return no_rule(subject, operation.path, "change the head of a chain so")
    is_raised = new.next_index != chain.head.next_index
    if is_raised and _publication(chain, operations) is None:
        return no_rule(subject, operation.path, "raise the head of a chain without a link")
    return _with(subject, chain, operation.path, needed)


def _decide_link(
    subject: Subject, chain: _Chain, operation: Operation, operations: Sequence[Operation]
) -> Verdict:
    publication = _publication(chain, operations)
    if not isinstance(operation, Create) or publication is None or publication[0] != operation:
        return no_rule(subject, operation.path, "store a link that the head does not count")
    return _with(subject, chain, operation.path, LedgerRight.APPEND)


def _decide_applied(
    subject: Subject,
    chain: _Chain,
    operation: Operation,
    operations: Sequence[Operation],
    known: Known,
) -> Verdict:
    """Decide about the last batch of an application, which only rises, with a link of it, by one
    query.
    """
    path = operation.path
    refused = no_rule(subject, path, "store a batch without its link, or below the last one")
    publication = _publication(chain, operations)
    if publication is None or not isinstance(operation, Create | CompareAndSet):
        return refused
    link = publication[1]
    applied = APPLIED_CODEC.unpack(path, operation.value)
    fits = (
        path == chain_application_path(chain.name, link.application)
        and (applied.application, applied.batch) == (link.application, link.batch)
        and applied.index == chain.head.next_index
    )
    if fits and isinstance(operation, CompareAndSet):
        stored = at_version(known, path, operation.expected)
        if isinstance(stored, Impossible):
            return stored
        last = APPLIED_CODEC.unpack(path, stored.value)
        fits = last.batch < applied.batch and last.query == applied.query
    return _with(subject, chain, path, LedgerRight.APPEND) if fits else refused


def _decide_inner(subject: Subject, chain: _Chain, operation: Operation) -> Verdict:
    """Decide about an empty node between a chain and its links or applications."""
    if not (isinstance(operation, Create) and operation.value == b""):
        return no_rule(subject, operation.path, "store a value between a chain and its parts")
    return _with(subject, chain, operation.path, LedgerRight.APPEND)


def _decide_removal(subject: Subject, chain: _Chain, path: str, names: list[str]) -> Verdict:
    if chain.head.is_deleted:
        return Allowed(pins=chain.pins)
    match names:
        case ["links", *levels] if _are_levels(levels):
            index = int("".join(levels)) if len(levels) == len(LINK_LEVEL_DIGITS) else -1
            if index < chain.head.first_index:
                return _with(subject, chain, path, LedgerRight.MANAGE)
        case _:
            pass
    return no_rule(subject, path, "remove this node of a chain that is not deleted")


def _with(subject: Subject, chain: _Chain, path: str, needed: LedgerRight) -> Verdict:
    if needed & ~chain.rights:
        role = LedgerRole.WRITER if needed is LedgerRight.APPEND else LedgerRole.ADMIN
        what = f"change chain {chain.name!r} so"
        return no_role(subject, path, what, role, f"chain:{chain.name}")
    return Allowed(pins=chain.pins)


def _publication(chain: _Chain, operations: Sequence[Operation]) -> tuple[Create, ChainLink] | None:
    """Return the link that a multi adds together with the change of the head; None if there is
    none.
    """
    path, above = chain_path(chain.name), f"{chain_path(chain.name)}/links/"
    heads = [part for part in operations if isinstance(part, CompareAndSet) and part.path == path]
    links = [part for part in operations if part.path.startswith(above)]
    if len(heads) != 1 or len(links) != 1 or not isinstance(links[0], Create):
        return None
    levels = links[0].path.removeprefix(above).split("/")
    if not _are_levels(levels) or len(levels) != len(LINK_LEVEL_DIGITS):
        return None
    link, head = (
        LINK_CODEC.unpack(links[0].path, links[0].value),
        HEAD_CODEC.unpack(path, heads[0].value),
    )
    fits = fits_link(chain.head, head, int("".join(levels)), link)
    return (links[0], link) if fits else None


def _are_levels(levels: Sequence[str]) -> bool:
    return len(levels) <= len(LINK_LEVEL_DIGITS) and all(
        len(name) == count and name.isascii() and name.isdecimal()
        for name, count in zip(levels, LINK_LEVEL_DIGITS, strict=False)
    )
