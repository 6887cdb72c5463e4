"""Authorizer: decides what clients may do, by the access control lists of the cluster.

Leaves the rules to `acl_table`, the lists to `metadata.security.acl_store`, and refusing requests
to the guards and services.

Invariants: super users may do everything; while a part of the lists cannot be read, only super
users may do anything; a decision is kept only until the lists change; each refusal goes to the
audit log.

Source: KIP-11; Kafka's StandardAuthorizer.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, Protocol

from broker_layer.kafka.versions import ApiKey
from broker_layer.security.acl_table import AclTable, Client, Decision
from broker_layer.security.rights import Rights
from metadata.security.acls import AclBinding, Operation, ResourceType
from metadata.store.interface import Cancel, WatchCallback
from quire.identity.principal import Principal
from quire.server.audit_log import AuditLog

DECISIONS_MAX: Final = 20_000
"""Maximum number of decisions in the cache; it is emptied at the limit."""
CACHED_NAME_MAX: Final = 400
"""Maximum length of the names of clients and resources in the cache and in the log, in
characters.
"""

_PEER_RIGHTS: Final = (
    (Operation.CLUSTER_ACTION, ResourceType.CLUSTER),
    (Operation.DESCRIBE, ResourceType.TOPIC),
)
"""What brokers ask of each other: markers and open transactions, and whether a topic is shown."""

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
    """Decides what the clients of one broker may do; belongs to one event loop."""

    def __init__(self, source: AclSource, config: AuthorizerConfig, audit: AuditLog) -> None:
        self._source = source
        self._config = config
        self._audit = audit
        self._table: AclTable | None = None
        self._decisions: dict[_Asked, bool] = {}
        self._cancel = source.on_change(self._change)

    def rights_of(self, principal: Principal, host: str, listener: str, api_key: int) -> Rights:
        """Return the rights of a client that requests an API."""
        return _ClientRights(
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


class _ClientRights:
    """Rights of one client during one request."""

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
        """See `Rights.may`."""
        if self._is_peer and (operation, kind) in _PEER_RIGHTS:
            return True
        return self._authorizer.allows(self._client, operation, kind, name)

    def may_any(self, operation: Operation, kind: ResourceType) -> bool:
        """See `Rights.may_any`."""
        return self._authorizer.allows_any(self._client, operation, kind)

    def check(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """See `Rights.check`."""
        if self.may(operation, kind, name):
            return True
        act = ApiKey(self._api_key).shown
        self._authorizer.note_refusal(self._client, act, operation, kind, name)
        return False
