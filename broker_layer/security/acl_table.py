"""Decision of what access control lists allow. Pure.

Leaves the bindings to `metadata.security.acls`, and super users and the default to `authorizer`.

Invariants: a binding that denies wins over all that allow; a permission to read, write, delete or
alter implies to describe, and one to alter settings implies to describe them; a denial implies
nothing else.

Source: KIP-11, KIP-290, KIP-679 (`allows_any`); Kafka's StandardAuthorizerData.
"""

from collections.abc import Iterable, Iterator
from enum import Enum
from typing import Final, NamedTuple

from metadata.security.acls import (
    ANY_NAME,
    ANY_USER,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)

IMPLIED_BY: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""The operations whose permission implies the permission of another operation."""


class Decision(Enum):
    """Decision about one operation on one resource. NO_RULE: no binding names the resource."""

    ALLOWED = "allowed"
    DENIED = "denied"
    NO_RULE = "no rule"


class Client(NamedTuple):
    """Client that wants to do an operation."""

    principal: str
    host: str


class _Rules:
    """Bindings of one type of resource."""

    def __init__(self) -> None:
        self.literal: dict[str, list[AclBinding]] = {}
        self.prefixed: dict[int, dict[str, list[AclBinding]]] = {}
        """Bindings by the length of their prefix, then by the prefix."""

    def add(self, binding: AclBinding) -> None:
        """Add a binding."""
        names = self.literal
        if binding.pattern_type is PatternType.PREFIXED:
            names = self.prefixed.setdefault(len(binding.name), {})
        names.setdefault(binding.name, []).append(binding)

    def of(self, name: str) -> Iterator[AclBinding]:
        """Yield the bindings that apply to the resource with a name."""
        yield from self.literal.get(name, ())
        if name != ANY_NAME:
            yield from self.literal.get(ANY_NAME, ())
        yield from self.prefixes_of(name)

    def prefixes_of(self, name: str) -> Iterator[AclBinding]:
        """Yield the bindings whose prefix the name has."""
        for length, names in self.prefixed.items():
            if length <= len(name):
                yield from names.get(name[:length], ())

    def all(self) -> Iterator[AclBinding]:
        """Yield all bindings."""
        for names in (self.literal, *self.prefixed.values()):
            for bindings in names.values():
                yield from bindings


class AclTable:
    """All bindings of a cluster, arranged for decisions."""

    def __init__(self, bindings: Iterable[AclBinding]) -> None:
        self._rules: dict[ResourceType, _Rules] = {}
        for binding in bindings:
            self._rules.setdefault(binding.resource_type, _Rules()).add(binding)

    def decide(
        self, client: Client, operation: Operation, kind: ResourceType, name: str
    ) -> Decision:
        """Decide whether a client may do an operation on a resource."""
        rules = self._rules.get(kind)
        decision = Decision.NO_RULE
        for binding in () if rules is None else rules.of(name):
            if decision is Decision.NO_RULE:
                decision = Decision.DENIED
            if _applies(binding, client, operation):
                if binding.permission is Permission.DENY:
                    return Decision.DENIED
                decision = Decision.ALLOWED
        return decision

    def allows_any(self, client: Client, operation: Operation, kind: ResourceType) -> bool:
        """Return whether a client may do an operation on at least one resource that it could name.

        A prefix counts as allowed unless the same prefix, or a shorter one, is denied.
        """
        rules = self._rules.get(kind)
        if rules is None or self.denies_all(client, operation, kind):
            return False
        return any(
            binding.permission is Permission.ALLOW
            and _applies(binding, client, operation)
            and not _is_denied(rules, binding, client, operation)
            for binding in rules.all()
        )

    def denies_all(self, client: Client, operation: Operation, kind: ResourceType) -> bool:
        """Return whether an operation is denied on all resources of a type."""
        rules = self._rules.get(kind)
        named = () if rules is None else rules.literal.get(ANY_NAME, ())
        return any(_denies(each, client, operation) for each in named)


def _is_denied(rules: _Rules, allowed: AclBinding, client: Client, operation: Operation) -> bool:
    """Return whether bindings that deny apply to all resources of a binding that allows."""
    names = list(rules.prefixes_of(allowed.name))
    if allowed.pattern_type is PatternType.LITERAL:
        if allowed.name == ANY_NAME:
            return False
        names += rules.literal[allowed.name]
    return any(_denies(each, client, operation) for each in names)


def _denies(binding: AclBinding, client: Client, operation: Operation) -> bool:
    return binding.permission is Permission.DENY and _applies(binding, client, operation)


def _applies(binding: AclBinding, client: Client, operation: Operation) -> bool:
    """Return whether a binding is about a client and an operation."""
    if binding.principal not in (client.principal, ANY_USER):
        return False
    if binding.host not in (client.host, ANY_NAME):
        return False
    if binding.operation in (operation, Operation.ALL):
        return True
    is_allowing = binding.permission is Permission.ALLOW
    return is_allowing and binding.operation in IMPLIED_BY.get(operation, ())
