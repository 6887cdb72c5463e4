"""Which of the quotas of one key holds for a client. Pure.

Leaves the quotas to `metadata.security.quota_set`, and what clients have used to `rate_buckets`.

The first of these entities that has a value holds:

    level  user     client id  clients that share the rate
    1      name     name       those of the user with this client id
    2      name     default    those of the user with this client id
    3      name     -          all of the user
    4      default  name       those of the user with this client id
    5      default  default    those of the user with this client id
    6      default  -          all of the user
    7      -        name       all with this client id
    8      -        default    all with this client id

Invariants: a default is not one rate for all clients: each user, or each client id, has it alone. A
default of bookies' keys holds for no client that proved nothing: brokers may be among them.

Source: KIP-55, KIP-546.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from metadata.security.quota_set import QuotaSet
from metadata.security.quotas import EntityType, QuotaEntity, QuotaKey
from quire.identity.principal import ANONYMOUS

Bucket = tuple[str | None, str | None]
"""User and client id of the clients that share a rate; None stands for all."""


OF_BOOKIES: Final = (QuotaKey.APPEND_BYTE_RATE, QuotaKey.READ_BYTE_RATE)
"""Keys that bookies enforce."""


class Limit(NamedTuple):
    """The quota that holds for a client."""

    value: float
    bucket: Bucket


def find_limit(quotas: QuotaSet, key: QuotaKey, user: str, client_id: str) -> Limit | None:
    """Return the quota of a client; None if it has none."""
    has_defaults = key not in OF_BOOKIES or user != ANONYMOUS.name
    for entity, bucket in _levels(user, client_id, has_defaults=has_defaults):
        value = quotas.find(entity, key)
        if value is not None:
            return Limit(value, bucket)
    return None


def find_address_limit(quotas: QuotaSet, key: QuotaKey, address: str) -> float | None:
    """Return the quota of an address: its own, or the default; None if there is none."""
    for name in (address, None):
        value = quotas.find(QuotaEntity(((EntityType.IP, name),)), key)
        if value is not None:
            return value
    return None


def _levels(
    user: str, client_id: str, *, has_defaults: bool
) -> Iterator[tuple[QuotaEntity, Bucket]]:
    for user_name in (user, None) if has_defaults else (user,):
        of_user = (EntityType.USER, user_name)
        for client_name in (client_id, None):
            names = (of_user, (EntityType.CLIENT_ID, client_name))
            yield QuotaEntity(names), (user, client_id)
        yield QuotaEntity((of_user,)), (user, None)
    for client_name in (client_id, None):
        yield QuotaEntity(((EntityType.CLIENT_ID, client_name),)), (None, client_id)
