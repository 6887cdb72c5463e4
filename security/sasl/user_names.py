"""Names of users in messages of SASL. Pure.

Leaves which users exist to `metadata.security`.

Invariants: whether a name can be used depends on its characters alone. A name that is accepted has
no control characters, so it fits a line of a log. An authorization identity gives no rights: it is
empty or the user.

Source: RFC 4422, section 3.4.1.
"""

from typing import Final

from security.errors import SaslError

NAME_BYTES_MAX: Final = 512
_DELETE: Final = 0x7F
_CONTROL_END: Final = 0xA0
_SPACE: Final = 0x20


def name_problem(name: str) -> str:
    """Return why a name cannot be used; empty if it can."""
    if not name:
        return "the name of the user is empty"
    if len(name.encode()) > NAME_BYTES_MAX:
        return f"the name of the user has more than {NAME_BYTES_MAX} B"
    if any(ord(each) < _SPACE or _DELETE <= ord(each) < _CONTROL_END for each in name):
        return "the name of the user has control characters"
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
