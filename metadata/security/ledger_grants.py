"""All grants of one principal as an immutable value, and their bytes. Pure.

Leaves roles and resources to `ledger_roles.py`, and storing the value to `grant_store.py`.

Format: the name of the node is the principal in UTF-8. Every byte but ASCII letters, digits, `_`,
`-`, `~` and `.` is written as `%` and two hexadecimal digits.

Invariant: a record has at least one grant, and none twice.

Source: protocol rule 12.3.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Final
from urllib.parse import quote, unquote

from metadata.errors import MetadataFormatError
from metadata.ledgers.ledger_owner import is_owner
from metadata.msgpack_fields import FieldError, Packed, array_of, text_of
from metadata.records import NOT_STORED, Form, array, codec_of
from metadata.security.errors import InvalidGrantError, TooManyGrantsError
from metadata.security.ledger_roles import LedgerGrant, parse_resource, parse_role

GRANTS_MAX: Final = 1_000
"""Maximum number of grants of one principal."""
PRINCIPALS_MAX: Final = 10_000
"""Maximum number of principals with grants. Additions at the same time can exceed it by their
number.
"""

_GRANT_FIELD_COUNT: Final = 2


def _read_grant(field: Packed) -> LedgerGrant:
    fields = array_of(field)
    if len(fields) != _GRANT_FIELD_COUNT:
        raise FieldError(f"a grant has {_GRANT_FIELD_COUNT} fields, found {len(fields)}")
    return LedgerGrant(parse_role(text_of(fields[0])), parse_resource(text_of(fields[1])))


_GRANT: Final = Form[LedgerGrant](
    "[role str, ledgers str]",
    lambda grant: [str(grant.role), grant.resource.text],
    _read_grant,
)


@dataclass(frozen=True, slots=True)
class GrantRecord:
    """Grants of one principal. Create it with `grants_of`."""

    principal: Annotated[str, NOT_STORED]
    grants: Annotated[tuple[LedgerGrant, ...], array(_GRANT, GRANTS_MAX)]


def _check_order(record: GrantRecord) -> None:
    if record != grants_of(record.principal, record.grants):
        raise FieldError("its grants are not in order, or there are none")


GRANTS_CODEC: Final = codec_of(GrantRecord, _check_order)


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
