"""A quota: the clients that it is for, its values, and its bytes. Pure.

Leaves storing quotas to `quota_store.py`, those in memory to `quota_set.py`, and which one a client
has to `rates/quota_rules.py`.

Format: the name of the node has the types in the order of `EntityType`, separated by `,`: a type
alone for the default, and `type=name` for a name, which is escaped as `urllib.parse.quote` does.

Invariants: an entity has a user, a client id or both, or an address alone; only a user alone has
keys of bookies; it has at least one value; different entities have different nodes.

Source: KIP-546 (entities and keys), KIP-124, KIP-599, KIP-612.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from ipaddress import ip_address
from types import MappingProxyType
from typing import Annotated, Final, NamedTuple
from urllib.parse import quote, unquote

from metadata.errors import MetadataFormatError
from metadata.msgpack_fields import Packed, float_of
from metadata.records import INT64_MAX, NOT_STORED, TABLE, codec_of, translated
from metadata.security.errors import InvalidQuotaError

QUOTAS_MAX: Final = 10_000
"""Maximum number of entities with quotas. Creations at the same time can exceed it by their number.
"""
NAME_CHARACTERS_MAX: Final = 255
INT32_MAX: Final = 2**31 - 1


class EntityType(StrEnum):
    """What an entity names, under Kafka's names."""

    USER = "user"
    CLIENT_ID = "client-id"
    IP = "ip"


class QuotaKey(StrEnum):
    """What is limited: by brokers under Kafka's names, and by bookies."""

    PRODUCER_BYTE_RATE = "producer_byte_rate"
    CONSUMER_BYTE_RATE = "consumer_byte_rate"
    REQUEST_PERCENTAGE = "request_percentage"
    CONTROLLER_MUTATION_RATE = "controller_mutation_rate"
    CONNECTION_CREATION_RATE = "connection_creation_rate"
    APPEND_BYTE_RATE = "append_byte_rate"
    """Of bookies."""
    READ_BYTE_RATE = "read_byte_rate"
    """Of bookies."""


class _Scope(Enum):
    """Which entities may have a key."""

    CLIENTS = auto()
    """Users, client ids, and both together."""
    USERS = auto()
    """Users alone: bookies know no client ids that a client cannot choose."""
    ADDRESSES = auto()


class _Form(NamedTuple):
    """What a key's value may be, and which entities may have it."""

    value_max: float
    is_whole: bool
    scope: _Scope


_FORMS: Final[Mapping[QuotaKey, _Form]] = MappingProxyType(
    {
        QuotaKey.PRODUCER_BYTE_RATE: _Form(INT64_MAX, is_whole=True, scope=_Scope.CLIENTS),
        QuotaKey.CONSUMER_BYTE_RATE: _Form(INT64_MAX, is_whole=True, scope=_Scope.CLIENTS),
        QuotaKey.REQUEST_PERCENTAGE: _Form(math.inf, is_whole=False, scope=_Scope.CLIENTS),
        QuotaKey.CONTROLLER_MUTATION_RATE: _Form(math.inf, is_whole=False, scope=_Scope.CLIENTS),
        QuotaKey.CONNECTION_CREATION_RATE: _Form(INT32_MAX, is_whole=True, scope=_Scope.ADDRESSES),
        QuotaKey.APPEND_BYTE_RATE: _Form(INT64_MAX, is_whole=True, scope=_Scope.USERS),
        QuotaKey.READ_BYTE_RATE: _Form(INT64_MAX, is_whole=True, scope=_Scope.USERS),
    }
)

QuotaValues = Mapping[QuotaKey, float]
QuotaChanges = Mapping[QuotaKey, float | None]
"""New values; None removes a value."""


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """The clients that a quota is for. Create it with `entity_of`, or with names in order."""

    names: tuple[tuple[EntityType, str | None], ...]
    """In the order of the types. None is the default: all clients without a quota of their own."""

    @property
    def text(self) -> str:
        """The form in error messages and logs."""
        return ", ".join(f"{kind} {'default' if n is None else repr(n)}" for kind, n in self.names)

    @property
    def is_address(self) -> bool:
        """Whether it is about connections from addresses."""
        return self.names[0][0] is EntityType.IP

    @property
    def is_user(self) -> bool:
        """Whether it is a user, or the default of users, without a client id."""
        return len(self.names) == 1 and self.names[0][0] is EntityType.USER


def entity_of(names: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    """Return the entity of these types and names; None is the default. Raises InvalidQuotaError."""
    named: dict[EntityType, str | None] = {}
    for word, name in names:
        kind = entity_type_of(word)
        if kind in named:
            raise InvalidQuotaError(f"the entity names its {kind} twice: name it once")
        named[kind] = name if name is None else _checked_name(kind, name)
    if not named:
        raise InvalidQuotaError("the entity is empty: name a user, a client-id, or an ip")
    if EntityType.IP in named and len(named) > 1:
        raise InvalidQuotaError(
            "the entity has an ip and a user or client-id: make a quota for each of them"
        )
    return QuotaEntity(tuple((kind, named[kind]) for kind in EntityType if kind in named))


def entity_type_of(word: str) -> EntityType:
    """Return the type with Kafka's name. Raises InvalidQuotaError."""
    try:
        return EntityType(word)
    except ValueError:
        known = ", ".join(EntityType)
        raise InvalidQuotaError(
            f"the entity type {word[:NAME_CHARACTERS_MAX]!r} is unknown: use one of {known}"
        ) from None


def keys_of(entity: QuotaEntity) -> list[QuotaKey]:
    """Return the keys that an entity may have."""
    if entity.is_address:
        scopes = {_Scope.ADDRESSES}
    else:
        scopes = {_Scope.CLIENTS, _Scope.USERS} if entity.is_user else {_Scope.CLIENTS}
    return [quota_key for quota_key in QuotaKey if _FORMS[quota_key].scope in scopes]


def check_change(entity: QuotaEntity, key: str, value: float) -> QuotaKey:
    """Return the key of a value that an entity may have. Raises InvalidQuotaError."""
    known = keys_of(entity)
    valid = next((quota_key for quota_key in known if quota_key == key), None)
    if valid is None:
        raise InvalidQuotaError(
            f"the key {key[:NAME_CHARACTERS_MAX]!r} is not one of {entity.text}: use one of "
            + ", ".join(known)
        )
    form = _FORMS[valid]
    if not (0 < value <= form.value_max and math.isfinite(value)):
        raise InvalidQuotaError(
            f"{valid} is {value}: use a number greater than 0 that fits its type, or remove it"
        )
    if form.is_whole and not value.is_integer():
        raise InvalidQuotaError(f"{valid} is {value}: use a whole number")
    return valid


def altered(values: QuotaValues, changes: QuotaChanges) -> QuotaValues:
    """Apply changes to the values of an entity."""
    merged = {**values, **changes}
    return {key: merged[key] for key in QuotaKey if merged.get(key) is not None}  # type: ignore[misc]  # None is left out


def node_name(entity: QuotaEntity) -> str:
    """Return the name of an entity's node."""
    return ",".join(
        kind.value if name is None else f"{kind}={quote(name, safe='')}"
        for kind, name in entity.names
    )


def entity_of_node(node: str) -> QuotaEntity:
    """Return the entity that a node belongs to. Raises MetadataFormatError."""
    try:
        parts = [part.partition("=") for part in node.split(",")]
        entity = entity_of(
            (kind, unquote(name, errors="strict") if has_name else None)
            for kind, has_name, name in parts
        )
        if node_name(entity) == node:
            return entity
    except (UnicodeDecodeError, InvalidQuotaError):
        pass
    raise MetadataFormatError(f"the name {node[:250]!r} of a quota's node", "it has another form")


def _read_values(stored: dict[str, Packed]) -> QuotaValues:
    if not stored:
        raise InvalidQuotaError("the entity has no value")
    return {QuotaKey(key): float_of(value) for key, value in stored.items()}


_VALUES: Final = translated(
    TABLE,
    lambda values: {key.value: float(value) for key, value in values.items()},
    _read_values,
    "{key str: float}",
)


@dataclass(frozen=True, slots=True)
class QuotaRecord:
    """The quota of one entity."""

    entity: Annotated[QuotaEntity, NOT_STORED]
    values: Annotated[QuotaValues, _VALUES]


def _check_quota(quota: QuotaRecord) -> None:
    for key, value in quota.values.items():
        check_change(quota.entity, key, value)


QUOTA_CODEC: Final = codec_of(QuotaRecord, _check_quota)


def _checked_name(kind: EntityType, name: str) -> str:
    if not 0 < len(name) <= NAME_CHARACTERS_MAX:
        raise InvalidQuotaError(
            f"the name of the {kind} has {len(name)} characters: use 1 to {NAME_CHARACTERS_MAX}, or"
            " the default"
        )
    try:
        name.encode()
    except UnicodeEncodeError:
        raise InvalidQuotaError(f"the name of the {kind} has no UTF-8 form: use another") from None
    return _checked_address(name) if kind is EntityType.IP else name


def _checked_address(name: str) -> str:
    """Return an address in its usual form."""
    try:
        address = ip_address(name)
    except ValueError:
        raise InvalidQuotaError(f"{name!r} is not an IP address: names are not resolved") from None
    if "%" in name:
        raise InvalidQuotaError(f"{name!r} has a zone: name the address alone")
    return str(address)
