"""Source of a user's password: a private file, the standard input or the environment.

Leaves files to `quire.identity.secret_files`. A password is never an argument: other users of the
machine can see those. No error holds a password.
"""

import argparse
import os
import sys
import unicodedata
from typing import Final

from quire.errors import UsageError
from quire.identity.secret_files import SECRET_BYTES_MAX, read_secret

PASSWORD_VARIABLE: Final = "QUIRE_USER_PASSWORD"
STANDARD_INPUT: Final = "-"
SEE_HELP: Final = "quire user add --help"

_REFUSED_CATEGORIES: Final = frozenset(("Cc", "Cs"))


def read_password(arguments: argparse.Namespace) -> str:
    """Return the password of a new or changed user. Raises UsageError, SecretError."""
    path: str | None = arguments.password_file
    if path is None:
        return _checked(os.environ.get(PASSWORD_VARIABLE), f"the variable {PASSWORD_VARIABLE}")
    if path == STANDARD_INPUT:
        return _checked(_from_standard_input(), "the standard input")
    return _checked(read_secret(path), f"the file {path}")


def _from_standard_input() -> str:
    if sys.stdin.isatty():
        raise UsageError(
            "the standard input is a terminal, which would show the password",
            try_next="--password-file FILE, or a pipe",
        )
    data = sys.stdin.buffer.read(SECRET_BYTES_MAX + 1)
    try:
        return data.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError(
            f"the standard input is not UTF-8 text, or has more than {SECRET_BYTES_MAX} B",
            try_next=SEE_HELP,
        ) from None


def _checked(password: str | None, source: str) -> str:
    if password is None:
        raise UsageError(
            f"no password is given: neither --password-file nor {PASSWORD_VARIABLE} is set",
            try_next="--password-file FILE",
        )
    if not password:
        raise UsageError(f"the password in {source} is empty", try_next=SEE_HELP)
    if any(unicodedata.category(each) in _REFUSED_CATEGORIES for each in password):
        raise UsageError(
            f"the password in {source} has a control character, or more than one line",
            try_next=SEE_HELP,
        )
    if len(password.encode()) > SECRET_BYTES_MAX:
        raise UsageError(
            f"the password in {source} has more than {SECRET_BYTES_MAX} B", try_next=SEE_HELP
        )
    return password
