"""Authorizer: decides what clients may do, by the access control lists of the cluster.

Leaves the bindings to `metadata.security.acls`, the lists to `metadata.security.acl_store`, and
refusing requests to the guards and services.

Source: KIP-11, KIP-290, KIP-430 (authorized operations), KIP-679 (`allows_any`); Kafka's
StandardAuthorizer.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Protocol

from broker_layer.kafka.error_codes import ErrorCode
from broker_layer.kafka.messages import (
    CLUSTER_OPERATIONS,
    GROUP_OPERATIONS,
    TOPIC_OPERATIONS,
)
from broker_layer.kafka.versions import ApiKey
from metadata.security.acls import (
    ANY_NAME,
    ANY_USER,
    CLUSTER_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from metadata.store.interface import Cancel, WatchCallback
from quire.identity.principal import Principal
from quire.server.server_log import AuditLog

DECISIONS_MAX: Final = 20_000
"""Maximum number of decisions in the cache; it is emptied at the limit."""
CACHED_NAME_MAX: Final = 400
"""Maximum length of the names of clients and resources in the cache and in the log, in
characters.
"""
IMPLIED_BY: Final = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
"""The operations whose permission implies the permission of another operation."""
REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""Kafka's error for an operation on a resource of each type that is not allowed."""
NOT_AUTHORIZED: Final = "not authorized: an administrator can grant the right (quire acl add)"
"""Text of a refusal."""
_PEER_RIGHTS: Final = (
    (Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
    (Operation.DESCRIBE, ResourceType.TOPIC),
)
"""What brokers ask of each other: markers and open transactions, and whether a topic is shown."""
_SHOWN: Final = {
    ResourceType.TOPIC: TOPIC_OPERATIONS,
    ResourceType.GROUP: GROUP_OPERATIONS,
    ResourceType.CLUSTER: CLUSTER_OPERATIONS,
}


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
    """All bindings of a cluster, arranged for decisions.

    A binding that denies wins over all that allow. A permission to read, write, delete or alter
    implies to describe, and one to alter settings implies to describe them; a denial implies
    nothing else.
    """

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
        return any(_denies(binding, client, operation) for binding in named)


def _is_denied(rules: _Rules, allowed: AclBinding, client: Client, operation: Operation) -> bool:
    """Return whether bindings that deny apply to all resources of a binding that allows."""
    names = list(rules.prefixes_of(allowed.name))
    if allowed.pattern_type is PatternType.LITERAL:
        if allowed.name == ANY_NAME:
            return False
        names += rules.literal[allowed.name]
    return any(_denies(name, client, operation) for name in names)


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


_Asked = tuple[str, str, Operation, ResourceType, str | None]
"""Principal, host, operation, and the type and name of the resource; None for any name."""


@dataclass(frozen=True, slots=True)
class AuthorizerConfig:
    """Options of the authorizer."""

    super_users: frozenset[str] = frozenset()
    """Principals, as text, that may do everything."""

    allow_everyone_if_no_acl_found: bool = False
    broker_listener: str | None = None
    """Name of the listener whose clients are brokers; None if they must prove that."""


class AclSource(Protocol):
    """The part of `metadata.security.acl_store.AclView` that the authorizer uses."""

    @property
    def bindings(self) -> Iterable[AclBinding]:
        """The known bindings."""

    @property
    def is_readable(self) -> bool:
        """Whether all bindings are known."""

    def on_change(self, callback: WatchCallback) -> Cancel:
        """Call back after each change."""


class Authorizer:
    """Decides what the clients of one broker may do; belongs to one event loop.

    Super users may do everything; while a part of the lists cannot be read, the others may do
    nothing. A decision is kept only until the lists change. Each refusal goes to the audit log.
    """

    def __init__(self, source: AclSource, config: AuthorizerConfig, audit: AuditLog) -> None:
        self._source = source
        self._config = config
        self._audit = audit
        self._table: AclTable | None = None
        self._decisions: dict[_Asked, bool] = {}
        self._cancel = source.on_change(self._change)

    def rights_of(self, principal: Principal, host: str, listener: str, api_key: int) -> "Rights":
        """Return the rights of a client that requests an API."""
        return Rights(
            self, Client(principal.text, host), api_key, listener == self._config.broker_listener
        )

    def allows(self, client: Client, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether a client may do an operation on a resource."""
        if client.principal in self._config.super_users:
            return True
        asked = (client.principal, client.host, operation, kind, name)
        known = self._decisions.get(asked)
        if known is None:
            known = self._decide(client, operation, kind, name)
            self._remember(asked, known)
        return known

    def allows_any(self, client: Client, operation: Operation, kind: ResourceType) -> bool:
        """Return whether a client may do an operation on some resource of a type."""
        if client.principal in self._config.super_users:
            return True
        if not self._source.is_readable:
            return False
        asked = (client.principal, client.host, operation, kind, None)
        known = self._decisions.get(asked)
        if known is None:
            table = self._current_table()
            known = table.allows_any(client, operation, kind) or (
                self._config.allow_everyone_if_no_acl_found
                and not table.denies_all(client, operation, kind)
            )
            self._remember(asked, known)
        return known

    def note_refusal(
        self, client: Client, act: str, operation: Operation, kind: ResourceType, name: str
    ) -> None:
        """Write a line to the audit log."""
        self._audit.refused(
            act,
            who=client.principal,
            peer=client.host,
            operation=operation.name,
            resource=kind.name,
            name=name[:CACHED_NAME_MAX],
        )

    def close(self) -> None:
        """Stop following the lists."""
        self._cancel()

    def _decide(self, client: Client, operation: Operation, kind: ResourceType, name: str) -> bool:
        if not self._source.is_readable:
            return False
        decision = self._current_table().decide(client, operation, kind, name)
        if decision is Decision.NO_RULE:
            return self._config.allow_everyone_if_no_acl_found
        return decision is Decision.ALLOWED

    def _current_table(self) -> AclTable:
        if self._table is None:
            self._table = AclTable(self._source.bindings)
        return self._table

    def _remember(self, asked: _Asked, allowed: bool) -> None:  # noqa: FBT001 - a decision
        principal, *_, name = asked
        if max(len(principal), len(name or "")) > CACHED_NAME_MAX:
            return
        if len(self._decisions) >= DECISIONS_MAX:
            self._decisions.clear()
        self._decisions[asked] = allowed

    def _change(self) -> None:
        self._table = None
        self._decisions.clear()


class Rights:
    """What one client may do during one request.

    Each right is decided when it is asked for, so a change of the access control lists has an
    effect on requests that wait.
    """

    __slots__ = ("_api_key", "_authorizer", "_client", "_is_peer")

    def __init__(
        self,
        authorizer: Authorizer,
        client: Client,
        api_key: int,
        is_peer: bool,  # noqa: FBT001 - handed on
    ) -> None:
        self._authorizer = authorizer
        self._client = client
        self._api_key = api_key
        self._is_peer = is_peer

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether the client may do an operation. A refusal is not logged."""
        if self._is_peer and (operation, kind) in _PEER_RIGHTS:
            return True
        return self._authorizer.allows(self._client, operation, kind, name)

    def may_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the client may do an operation on some resource; log no refusal."""
        return self._authorizer.allows_any(self._client, operation, kind)

    def check(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Return whether the client may do an operation; log a refusal."""
        if self.may(operation, kind, name):
            return True
        act = ApiKey(self._api_key).shown
        self._authorizer.note_refusal(self._client, act, operation, kind, name)
        return False


def may_on_cluster(rights: Rights, operation: Operation) -> bool:
    """Return whether a client may do an operation on the cluster; log a refusal."""
    return rights.check(operation, ResourceType.CLUSTER, CLUSTER_NAME)


def sees_topic(rights: Rights | None, name: str) -> bool:
    """Return whether a client may learn that a topic exists."""
    return rights is None or rights.may(Operation.DESCRIBE, ResourceType.TOPIC, name)


def creates_topic(rights: Rights | None, name: str) -> bool:
    """Return whether a client may create a topic; log a refusal."""
    return (
        rights is None
        or rights.may(Operation.CREATE, ResourceType.CLUSTER, CLUSTER_NAME)
        or rights.check(Operation.CREATE, ResourceType.TOPIC, name)
    )


def seen_topics(rights: Rights | None, names: Iterable[str]) -> list[str]:
    """Return the topics that a client may learn of."""
    return [name for name in names if sees_topic(rights, name)]


def operations_on(
    rights: Rights | None, kind: ResourceType, name: str = CLUSTER_NAME
) -> tuple[Operation, ...]:
    """Return the operations that a client may do on a resource; all without an authorizer.

    A client that may not describe the cluster gets none of the cluster, as from Kafka.
    """
    shown = _SHOWN[kind]
    if rights is None:
        return shown
    if kind is ResourceType.CLUSTER and not rights.may(Operation.DESCRIBE, kind, name):
        return ()
    return tuple(operation for operation in shown if rights.may(operation, kind, name))
