"""Names of users in messages of SASL. Pure.

Leaves which users exist to `metadata.security`.

Invariants: whether a name can be used depends on its characters alone, and a user of
`metadata.security` has no other name. A name that is accepted fits a line of a log. An
authorization identity gives no rights: it is empty or the user.

Source: RFC 4422, section 3.4.1.
"""

import unicodedata
from typing import Final

from quire.identity.errors import SaslError

NAME_CHARACTERS_MAX: Final = 255
_REFUSED_CATEGORIES: Final = ("Cc", "Cs", "Zl", "Zp")
"""Unicode's categories of control characters, halves of characters, and ends of lines."""


def name_problem(name: str) -> str:
    """Return why a name cannot be used; empty if it can."""
    if not name:
        return "the name of the user is empty"
    if len(name) > NAME_CHARACTERS_MAX:
        return f"the name of the user has more than {NAME_CHARACTERS_MAX} characters"
    if any(unicodedata.category(each) in _REFUSED_CATEGORIES for each in name):
        return "the name of the user has control characters or ends of lines"
    return ""


def check_names(user: str, authorization: str) -> None:
    """Refuse a name that cannot be used, and an authorization identity that is another user.
    Raises SaslError.
    """
    problem = name_problem(user)
    if problem:
        raise SaslError(f"authentication failed: {problem}; use another name")
    if authorization not in ("", user):
        raise SaslError(
            "authentication failed: the authorization identity is not the user; leave it empty",
            f"the user {user!r} asks for a connection as another user",
        )
