"""Clients of a gateway, what is known of the store, and decisions, as values. Pure.

Leaves deciding to the other modules of this package.

Invariants: what no rule allows is refused. A decision holds for the versions at which its values
were read: operations that do not name these versions themselves get checks (`pins`) that do.

Source: docs/security.md, "A gateway for clients".
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from metadata.errors import MetadataError, NodeNotFoundError, VersionConflictError
from metadata.ids import Version
from metadata.security.ledger_roles import NO_GRANTS, GrantedRights
from metadata.store.interface import Operation, Stored

FIRST_VERSION: Final = Version(0)


@dataclass(frozen=True, slots=True)
class Subject:
    """Client that asks."""

    principal: str
    """Empty if it proved nothing: then it may only read."""
    is_super: bool = False
    granted: GrantedRights = NO_GRANTS
    has_ephemeral: Callable[[str], bool] = lambda _: False
    """Whether a path is an ephemeral node of the client's session."""
    has_id: Callable[[int], bool] = lambda _: False
    """Whether an id is in a block that the client's session allocated."""

    @property
    def name(self) -> str:
        """The principal, for messages."""
        return self.principal or "a client without a principal"


@dataclass(frozen=True, slots=True)
class Known:
    """What was read for a decision: values and names of nodes; None is a node that does not
    exist.
    """

    values: Mapping[str, Stored | None] = field(default_factory=dict)
    names: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Needed:
    """What must be read for a decision, in this order: names first, then values."""

    names: tuple[str, ...] = ()
    values: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Allowed:
    """The request may be sent, with these operations in the same step."""

    pins: tuple[Operation, ...] = ()
    """Before the client's operations: they fail if what decided has changed."""
    added: tuple[Operation, ...] = ()
    """Behind the client's operations."""
    block: tuple[int, int] | None = None
    """Ids from the first to below the second that the client's session has if it succeeds."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The client does not have the right."""

    path: str
    why: str
    """Who lacks which right, and how to get it."""


@dataclass(frozen=True, slots=True)
class Impossible:
    """The request fails whatever the client's rights."""

    error: MetadataError


Verdict = Allowed | Refused | Impossible
ALLOWED: Final = Allowed()


def at_version(known: Known, path: str, expected: Version) -> Stored | Impossible:
    """Return the value that an operation at a version would replace."""
    stored = known.values.get(path)
    if stored is None:
        return Impossible(NodeNotFoundError(path))
    if stored.version != expected:
        return Impossible(VersionConflictError(path, expected))
    return stored


def no_rule(subject: Subject, path: str, what: str) -> Refused:
    """Return the refusal of a change that only super users may make."""
    return Refused(
        path,
        f"{subject.name} may not {what}: only the gateway's super_users may. Use an operator's "
        "certificate if this is an operator's work",
    )


def no_role(subject: Subject, path: str, what: str, role: str, resource: str) -> Refused:
    """Return the refusal of a change that a role allows."""
    if not subject.principal:
        return Refused(
            path,
            f"a client without a principal may not {what}: connect with a certificate that the "
            "gateway's tls_principal_rules map to a name",
        )
    return Refused(
        path,
        f"{subject.principal} may not {what}: an administrator can give it the role with `quire "
        f"grant add {subject.principal!r} {role} {resource}`",
    )
