"""Principals of clients with certificates, and of those that may do everything.

Leaves mapping rules to `quire.identity.principal`, and rights to `ledger_roles.py`.

Source: protocol rule 12.1.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from metadata.ledgers.ledger_owner import is_owner
from quire.identity.principal import ANONYMOUS, MappingRule, Principal, principal_of

PRINCIPALS_LISTED_MAX: Final = 1_000
SEPARATOR: Final = ";"


def certified_principal(certificate: Mapping[str, Any] | None, rules: Sequence[MappingRule]) -> str:
    """Return the principal of a verified certificate; empty if it proves none that can own a
    ledger.
    """
    return usable_principal(principal_of(certificate, rules))


def usable_principal(principal: Principal) -> str:
    """Return a principal as owners and grants have it; empty if it proved nothing, or cannot own a
    ledger.
    """
    return principal.text if principal != ANONYMOUS and is_owner(principal.text) else ""


def parse_principals(text: str) -> tuple[str, ...]:
    """Return the principals of a text, which semicolons separate. Raises ValueError."""
    users = tuple(part.strip() for part in text.split(SEPARATOR) if part.strip())
    for user in users:
        if not is_owner(user):
            raise ValueError(
                f"{user!r} is not a principal: write User:NAME, and separate several by semicolons"
            )
    if len(users) > PRINCIPALS_LISTED_MAX:
        raise ValueError(f"there are {len(users)} principals: name at most {PRINCIPALS_LISTED_MAX}")
    return users
