"""Bindings of access control lists, their filters, and their bytes. Pure.

Leaves storing and following the bindings to `acl_store.py`, and the decision of what they allow to
`broker_layer.security.authorizer`.

The bindings of one shard are one value; the shard is a hash of a binding's first three fields,
modulo ACL_SHARDS. Enums are stored with Kafka's numbers.

Invariants: bindings are stored once and in the order of their fields; a value has at most
BINDINGS_MAX bindings.

Source: KIP-11, KIP-290 (prefixes).
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from metadata.records import array, codec_of_one, row_of
from metadata.security.acl_errors import InvalidAclError, TooManyAclsError
from quire.identity.principal import USER, parse_principal

ACL_SHARDS: Final = 64
BINDINGS_MAX: Final = 1_000
"""Maximum number of bindings in one shard. All bindings of one resource are in one shard."""
NAME_BYTES_MAX: Final = 250
HOST_BYTES_MAX: Final = 100
PRINCIPAL_BYTES_MAX: Final = 400
"""Maximum sizes of a binding's texts, in bytes. A full shard of such bindings fits in one node."""
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type CLUSTER."""
ANY_NAME: Final = "*"
"""Name of a literal binding that applies to all resources of its type; also host of all hosts."""
ANY_USER: Final = f"{USER}:*"
"""Principal of a binding that applies to all principals."""


class ResourceType(IntEnum):
    """Type of a resource, with Kafka's number. ANY occurs only in filters."""

    __hash__ = int.__hash__  # an enum hashes its name, in Python: slow in keys of decisions

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How a binding's name names resources, with Kafka's number. ANY and MATCH occur only in
    filters: MATCH selects the bindings that apply to the resource with the filter's name.
    """

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """Operation on a resource, with Kafka's number. ANY occurs only in filters."""

    __hash__ = int.__hash__

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14


class Permission(IntEnum):
    """What a binding does, with Kafka's number. ANY occurs only in filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_CONFIGS: Final = (Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS)
OPERATIONS: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        *_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        *_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        *_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that exist on each type of resource, without ALL."""


@dataclass(frozen=True, slots=True, order=True)
class AclBinding:
    """One rule: a permission for a principal from a host to do an operation on some resources."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str
    principal: str
    host: str
    operation: Operation
    permission: Permission

    @property
    def shard(self) -> int:
        """The shard that holds the bindings of these resources."""
        return shard_of(self.resource_type, self.pattern_type, self.name)


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Selection of bindings. None and ANY select all values of a field."""

    resource_type: ResourceType = ResourceType.ANY
    pattern_type: PatternType = PatternType.ANY
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def selects(self, binding: AclBinding) -> bool:
        """Return whether a binding is selected."""
        return (
            self.resource_type in (ResourceType.ANY, binding.resource_type)
            and self._selects_name(binding)
            and self.principal in (None, binding.principal)
            and self.host in (None, binding.host)
            and self.operation in (Operation.ANY, binding.operation)
            and self.permission in (Permission.ANY, binding.permission)
        )

    def _selects_name(self, binding: AclBinding) -> bool:
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, binding.pattern_type):
            return False
        if self.name is None:
            return True
        if self.pattern_type is not PatternType.MATCH:
            return self.name == binding.name
        if binding.pattern_type is PatternType.PREFIXED:
            return self.name.startswith(binding.name)
        return binding.name in (self.name, ANY_NAME)


def shard_of(resource_type: ResourceType, pattern_type: PatternType, name: str) -> int:
    """Return the shard that holds the bindings of these resources."""
    text = f"{int(resource_type)}/{int(pattern_type)}/{name}"
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[0] % ACL_SHARDS


def check_binding(binding: AclBinding) -> None:
    """Raise InvalidAclError for a binding that cannot be stored."""
    kind, operation = binding.resource_type, binding.operation
    if kind is ResourceType.ANY:
        raise InvalidAclError("its resource type is ANY: name one type")
    if binding.pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise InvalidAclError("its pattern type must be LITERAL or PREFIXED")
    if binding.permission is Permission.ANY:
        raise InvalidAclError("its permission must be ALLOW or DENY")
    if operation is not Operation.ALL and operation not in OPERATIONS[kind]:
        known = ", ".join(allowed.name for allowed in (Operation.ALL, *OPERATIONS[kind]))
        raise InvalidAclError(f"{operation.name} does not exist on a {kind.name}: use {known}")
    _check_text("name", binding.name, NAME_BYTES_MAX)
    _check_text("principal", binding.principal, PRINCIPAL_BYTES_MAX)
    _check_text("host", binding.host, HOST_BYTES_MAX)
    if kind is ResourceType.CLUSTER and binding.name != CLUSTER_NAME:
        raise InvalidAclError(f"the only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    try:
        parse_principal(binding.principal)
    except ValueError as error:
        raise InvalidAclError(str(error)) from error


BINDINGS_CODEC: Final = codec_of_one(
    "bindings", array(row_of(AclBinding, check_binding), BINDINGS_MAX)
)


def ordered(bindings: Iterable[AclBinding]) -> tuple[AclBinding, ...]:
    """Return the bindings of a shard as they are stored. Raises TooManyAclsError."""
    rows = tuple(sorted(dict.fromkeys(bindings)))
    if len(rows) > BINDINGS_MAX:
        raise TooManyAclsError(BINDINGS_MAX)
    return rows


def _check_text(what: str, text: str, bytes_max: int) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError as error:
        raise InvalidAclError(f"its {what} has no UTF-8 form") from error
    if not 1 <= size <= bytes_max:
        raise InvalidAclError(f"its {what} has {size} bytes: use 1 to {bytes_max}")
