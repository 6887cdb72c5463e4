"""Roles of principals on ledgers, and the rights that they give. Pure.

Leaves which operation needs which right to `bookie.server.access`, storing grants to
`grant_store.py`, and a grant's bytes to `ledger_grants.py`.

Format of a resource: `ledger:7` is one ledger; `chain:orders` the ledgers of a chain;
`chain-prefix:or` those of all chains whose names begin so; `owner:User:alice` all ledgers of an
owner; `all` every ledger.

Invariants: what no grant allows is refused; the role of a writer includes no fence, and no add that
passes a fence; an owner has all rights on its own ledgers; text and resource correspond one to one.

Source: protocol rule 12.3.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntFlag, StrEnum
from types import MappingProxyType
from typing import Final

from metadata.ids import LedgerId, is_ledger_id
from metadata.ledgers.ledger_owner import is_owner
from metadata.security.errors import InvalidGrantError

NAME_CHARACTERS_MAX: Final = 512
ALL_LEDGERS: Final = "all"


class LedgerRight(IntFlag):
    """Rights on one ledger."""

    NONE = 0
    READ = 1
    """Read entries, the LAC and the ranges of entries."""
    APPEND = 2
    """Add entries and report the LAC, until the ledger is fenced."""
    FENCE = 4
    """Fence the ledger, which ends its writer."""
    RECOVERY_ADD = 8
    """Add entries that pass a fence: of a recovery, a repair or an in-sync copy."""
    MANAGE = 16
    """Delete the ledger, and change its metadata in other ways than writers and recoveries do."""


EVERY_RIGHT: Final = (
    LedgerRight.READ
    | LedgerRight.APPEND
    | LedgerRight.FENCE
    | LedgerRight.RECOVERY_ADD
    | LedgerRight.MANAGE
)


class LedgerRole(StrEnum):
    """Role of a principal on ledgers."""

    READER = "reader"
    WRITER = "writer"
    RECOVERER = "recoverer"
    ADMIN = "admin"


RIGHTS_OF_ROLE: Final[Mapping[LedgerRole, LedgerRight]] = MappingProxyType(
    {
        LedgerRole.READER: LedgerRight.READ,
        LedgerRole.WRITER: LedgerRight.APPEND,
        LedgerRole.RECOVERER: LedgerRight.READ | LedgerRight.FENCE | LedgerRight.RECOVERY_ADD,
        LedgerRole.ADMIN: EVERY_RIGHT,
    }
)


class ResourceKind(StrEnum):
    """Kind of what a grant is for."""

    LEDGER = "ledger"
    CHAIN = "chain"
    CHAIN_PREFIX = "chain-prefix"
    OWNER = "owner"
    ALL = ALL_LEDGERS


@dataclass(frozen=True, slots=True, order=True)
class Resource:
    """Ledgers that a grant is for. Create it with `parse_resource`."""

    kind: ResourceKind
    name: str = ""

    @property
    def text(self) -> str:
        """The resource as it is stored and shown."""
        return f"{self.kind}:{self.name}" if self.name else str(self.kind)


@dataclass(frozen=True, slots=True, order=True)
class LedgerGrant:
    """One role on some ledgers."""

    role: LedgerRole
    resource: Resource


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """Facts about a ledger that decide rights; none of them changes while the ledger exists."""

    ledger_id: LedgerId
    owner: str = ""
    chain: str = ""
    """Name of the chain for which the ledger was created; empty if there is none."""


class GrantedRights:
    """Rights of one principal, found without a look at each of its grants."""

    def __init__(self, grants: Iterable[LedgerGrant] = ()) -> None:
        self._exact: dict[str, LedgerRight] = {}
        prefixes: dict[str, LedgerRight] = {}
        for grant in grants:
            is_prefix = grant.resource.kind is ResourceKind.CHAIN_PREFIX
            table, key = (
                (prefixes, grant.resource.name) if is_prefix else (self._exact, grant.resource.text)
            )
            table[key] = table.get(key, LedgerRight.NONE) | RIGHTS_OF_ROLE[grant.role]
        self._prefixes = tuple(prefixes.items())

    def rights_on(self, facts: LedgerFacts) -> LedgerRight:
        """Return the rights that the grants give on a ledger."""
        own = self._exact.get(f"{ResourceKind.LEDGER}:{facts.ledger_id}", LedgerRight.NONE)
        return own | self.rights_on_chain(facts.chain, facts.owner)

    def rights_on_chain(self, chain: str, owner: str) -> LedgerRight:
        """Return the rights that the grants give on a chain itself, or on an owner's ledgers for
        it.
        """
        rights = LedgerRight.NONE
        for key in (
            ALL_LEDGERS,
            f"{ResourceKind.OWNER}:{owner}",
            f"{ResourceKind.CHAIN}:{chain}",
        ):
            rights |= self._exact.get(key, LedgerRight.NONE)
        if chain:
            for prefix, given in self._prefixes:
                if chain.startswith(prefix):
                    rights |= given
        return rights


NO_GRANTS: Final = GrantedRights()


def rights_of(principal: str, granted: GrantedRights, facts: LedgerFacts) -> LedgerRight:
    """Return the rights of a principal on a ledger. An empty principal proved nothing."""
    if not principal:
        return LedgerRight.NONE
    if principal == facts.owner:
        return EVERY_RIGHT
    return granted.rights_on(facts)


def parse_resource(text: str) -> Resource:
    """Return the resource of a text. Raises InvalidGrantError."""
    kind_text, colon, name = text.partition(":")
    try:
        kind = ResourceKind(kind_text)
    except ValueError:
        raise InvalidGrantError(text, "it has an unknown kind") from None
    if kind is ResourceKind.ALL:
        if colon:
            raise InvalidGrantError(text, "`all` has no name")
        return Resource(kind)
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or not name.isprintable():
        raise InvalidGrantError(text, f"its name must have 1 to {NAME_CHARACTERS_MAX} characters")
    if kind is ResourceKind.LEDGER and not _is_id_text(name):
        raise InvalidGrantError(text, "its name is not a ledger id")
    if kind is ResourceKind.OWNER and not is_owner(name):
        raise InvalidGrantError(text, "its name is not a principal such as User:alice")
    return Resource(kind, name)


def parse_role(text: str) -> LedgerRole:
    """Return the role of a text. Raises InvalidGrantError."""
    try:
        return LedgerRole(text)
    except ValueError:
        why = f"the role is none of {', '.join(LedgerRole)}"
        raise InvalidGrantError(text, why) from None


def _is_id_text(text: str) -> bool:
    return (
        text.isascii() and text.isdecimal() and str(int(text)) == text and is_ledger_id(int(text))
    )


def chain_rights_of(principal: str, granted: GrantedRights, chain: str, owner: str) -> LedgerRight:
    """Return the rights of a principal on a chain itself: APPEND allows to link ledgers, MANAGE
    everything. An empty principal proved nothing.
    """
    if principal and principal == owner:
        return EVERY_RIGHT
    return granted.rights_on_chain(chain, owner) if principal else LedgerRight.NONE
