"""All grants of one principal as an immutable value, and their bytes. Pure.

Leaves roles and resources to `ledger_roles.py`, and storing the value to `grant_store.py`.

Format: the value of `/security/ledger-grants/<name>` is a msgpack array

    index  field           msgpack type
    0      format version  int, 1
    1      principal       str, `User:<name>`
    2      grants          [[role str, resource str]], ascending

The name of the node is the principal in UTF-8. Every byte but ASCII letters, digits, `_`, `-`, `~`
and `.` is written as `%` and two hexadecimal digits.

Invariants: a record has at least one grant, and none twice; for any bytes, decoding returns a
record or raises MetadataFormatError.

Source: protocol rule 12.3.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import quote, unquote

from metadata.errors import MetadataFormatError
from metadata.ledgers.ledger_owner import is_owner
from metadata.msgpack_fields import (
    FieldError,
    Packed,
    array_of,
    pack_checked,
    text_of,
    unpack_versioned,
)
from metadata.security.errors import InvalidGrantError, TooManyGrantsError
from metadata.security.ledger_roles import LedgerGrant, parse_resource, parse_role

GRANTS_MAX: Final = 1_000
"""Maximum number of grants of one principal."""
PRINCIPALS_MAX: Final = 10_000
"""Maximum number of principals with grants. Additions at the same time can exceed it by their
number.
"""

_FORMAT_VERSION: Final = 1
_FIELD_COUNT: Final = 3
_GRANT_FIELD_COUNT: Final = 2


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """Grants of one principal. Create it with `grants_of`."""

    principal: str
    grants: tuple[LedgerGrant, ...]


def grants_of(principal: str, grants: Iterable[LedgerGrant]) -> GrantRecord | None:
    """Return the record of these grants; None without grants. Raises InvalidGrantError,
    TooManyGrantsError.
    """
    ordered = tuple(sorted(set(grants)))
    check_principal(principal)
    if len(ordered) > GRANTS_MAX:
        raise TooManyGrantsError(principal, GRANTS_MAX)
    return GrantRecord(principal, ordered) if ordered else None


def check_principal(principal: str) -> str:
    """Return the principal. Raises InvalidGrantError unless it can have grants."""
    if not is_owner(principal):
        raise InvalidGrantError(principal, "it is not a principal such as User:alice")
    return principal


def grant_node(principal: str) -> str:
    """Return the name of a principal's node. Raises InvalidGrantError."""
    return quote(check_principal(principal), safe="")


def principal_of_node(node: str) -> str:
    """Return the principal that a node belongs to. Raises MetadataFormatError."""
    try:
        principal = unquote(node, errors="strict")
        if grant_node(principal) == node:
            return principal
    except (UnicodeDecodeError, InvalidGrantError):
        pass
    raise MetadataFormatError(f"the name {node[:250]!r} of a node of grants", "it has another form")


def pack_grants(what: str, record: GrantRecord) -> bytes:
    """Return the stored form."""
    grants: list[Packed] = [[str(each.role), each.resource.text] for each in record.grants]
    fields: list[Packed] = [_FORMAT_VERSION, record.principal, grants]
    return pack_checked(what, fields, partial(unpack_grants, what))


def unpack_grants(what: str, value: bytes) -> GrantRecord:
    """Read a stored form. Raises MetadataFormatError for anything else."""
    fields = unpack_versioned(what, value, _FORMAT_VERSION, _FIELD_COUNT)
    try:
        grants = [_grant_of(array_of(each)) for each in array_of(fields[2])]
        record = grants_of(text_of(fields[1]), grants)
        if record is None or record.grants != tuple(grants):
            raise FieldError("its grants are not in order, or there are none")
    except (FieldError, InvalidGrantError, TooManyGrantsError) as error:
        raise MetadataFormatError(what, str(error)) from error
    return record


def _grant_of(fields: list[Packed]) -> LedgerGrant:
    if len(fields) != _GRANT_FIELD_COUNT:
        raise FieldError(f"a grant has {_GRANT_FIELD_COUNT} fields, found {len(fields)}")
    return LedgerGrant(parse_role(text_of(fields[0])), parse_resource(text_of(fields[1])))
