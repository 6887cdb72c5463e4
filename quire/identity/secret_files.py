"""Files that hold secrets or name them, read with a limit.

A secret never comes from a flag, and never appears in an error.

Invariant: a secret is read only from a file that no user but its owner may read or change; what is
checked is the open file, which cannot be exchanged in between. A file of root may also be readable
by its group, which is how Kubernetes gives a secret to a process. PostgreSQL has the same rule.
"""

import os
import stat
from pathlib import Path
from typing import Final

from quire.identity.errors import SecretError

SECRET_BYTES_MAX: Final = 4_096
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
ROOT: Final = 0


def read_secret(path: str) -> str:
    """Return the text of a file, without the end of the line. Raises SecretError."""
    try:
        secret = read_bounded(path, SECRET_BYTES_MAX, is_private=True).decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise SecretError(path, "it is not UTF-8 text") from None
    if not secret:
        raise SecretError(path, "it is empty")
    return secret


def read_ledger_password(path: str) -> bytes:
    """Return the password of a ledger from its file: all its bytes without the last newline. An
    empty file is the empty password. Raises SecretError.
    """
    return read_bounded(path, SECRET_BYTES_MAX, is_private=True).removesuffix(b"\n")


def read_bounded(path: str, bytes_max: int, *, is_private: bool) -> bytes:
    """Return the content of a file of at most `bytes_max`. Raises SecretError."""
    try:
        with Path(path).open("rb") as file:
            if is_private:
                _check_mode(path, os.fstat(file.fileno()))
            content = file.read(bytes_max + 1)
    except OSError as error:
        raise SecretError(path, f"it cannot be read ({error.strerror})") from error
    if len(content) > bytes_max:
        raise SecretError(path, f"it has more than {bytes_max} B")
    return content


def check_private(path: str) -> None:
    """Refuse a file that other users may read or change, and that a library reads. Raises
    SecretError.
    """
    try:
        status = Path(path).stat()
    except OSError as error:
        raise SecretError(path, f"it cannot be read ({error.strerror})") from error
    _check_mode(path, status)


def _check_mode(path: str, status: os.stat_result) -> None:
    mode = status.st_mode
    refused = OTHERS & ~stat.S_IRGRP if status.st_uid == ROOT else OTHERS
    if mode & refused:
        raise SecretError(
            path,
            f"users other than its owner may use it (mode {stat.S_IMODE(mode):o}): run chmod 600, "
            "and replace what others may have read",
        )
