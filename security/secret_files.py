"""Secrets, read from files that only their owner can read.

Leaves the meaning of a secret to its caller. A secret never comes from a flag, and never appears in
an error.
"""

import stat
from pathlib import Path
from typing import Final

from security.errors import SecretError

SECRET_BYTES_MAX: Final = 4_096
OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


def read_secret(path: str) -> str:
    """Return the text of a file, without the end of the line. Raises SecretError."""
    file = Path(path)
    check_private(file)
    try:
        with file.open("rb") as opened:
            text = opened.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise SecretError(f"the secret {path} cannot be read ({error.strerror})") from error
    if len(text) > SECRET_BYTES_MAX:
        raise SecretError(f"the secret {path} has more than {SECRET_BYTES_MAX} B")
    try:
        secret = text.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise SecretError(f"the secret {path} is not UTF-8 text") from None
    if not secret:
        raise SecretError(f"the secret {path} is empty")
    return secret


def check_private(file: Path) -> None:
    """Refuse a file that other users may read or change. Raises SecretError."""
    try:
        mode = file.stat().st_mode
    except OSError as error:
        raise SecretError(f"the secret {file} cannot be read ({error.strerror})") from error
    if mode & OTHERS:
        raise SecretError(f"other users may read or change the secret {file}: run chmod 600 {file}")
