"""File with the identity of a client: one for the command line, for Spark, and for the servers' own
clients.

Leaves the address of the cluster to the metadata URI, which names this file:
`zk://...?client=FILE`.

Format: TOML. `[tls]` has `certificate`, `key` and `authorities`, each a PEM file. An empty `[tls]`
uses the authorities of the system. `[admin]` has `token_file`, the secret for the servers' admin
ports. A path is relative to the directory of this file.
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import Final

from security.errors import ClientFileError, SecretError
from security.secret_files import read_bounded, read_secret
from security.tls import TlsFiles, client_context

FILE_BYTES_MAX: Final = 64 * 1024
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "tls": ("certificate", "key", "authorities"),
    "admin": ("token_file",),
}
"""Tables of the file, each with its names."""


@dataclass(frozen=True, slots=True)
class ClientFile:
    """Identity of a client."""

    tls: TlsFiles | None = None
    """Files for TLS; None if the client uses none."""
    admin_token_file: str = ""
    """File with the secret for admin ports; empty if there is none."""

    @property
    def admin_token(self) -> str:
        """Secret for admin ports. Raises SecretError."""
        return read_secret(self.admin_token_file) if self.admin_token_file else ""

    @property
    def context(self) -> SSLContext | None:
        """Context for connections. Raises SecurityError."""
        return None if self.tls is None else client_context(self.tls)


NO_IDENTITY: Final = ClientFile()


def context_of(path: str) -> SSLContext | None:
    """Return the context that a client's file describes; None for an empty path. Raises
    SecurityError.
    """
    return read_client_file(path).context if path else None


def read_client_file(path: str) -> ClientFile:
    """Read a client's file. Raises ClientFileError."""
    try:
        content = read_bounded(path, FILE_BYTES_MAX, is_private=False)
        return parse_client_file(content.decode(), Path(path).parent)
    except SecretError as error:
        raise ClientFileError(str(error)) from error
    except (ValueError, ClientFileError) as error:
        raise ClientFileError(f"the file {path} is not that of a client: {error}") from None


def parse_client_file(text: str, directory: Path) -> ClientFile:
    """Parse the text of a client's file. Raises ClientFileError, ValueError for other than TOML."""
    document = tomllib.loads(text)
    for name in document:
        _known(name, list(TABLES), "table")
    paths = {name: _paths(name, document[name], directory) for name in TABLES if name in document}
    tls, admin = paths.get("tls"), paths.get("admin", {})
    files = None if tls is None else TlsFiles(**tls)
    return ClientFile(files, admin.get("token_file", ""))


def _paths(title: str, table: object, directory: Path) -> dict[str, str]:
    """Return the paths of one table."""
    if not isinstance(table, dict):
        raise ClientFileError(f"{title} is not a table: write [{title}]")
    paths: dict[str, str] = {}
    for name, value in table.items():
        _known(name, TABLES[title], f"name in [{title}]")
        if not isinstance(value, str) or not value:
            raise ClientFileError(f"{name} must be the path of a file")
        paths[name] = str(directory / value)
    return paths


def _known(name: str, names: Sequence[str], what: str) -> None:
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"known are: {', '.join(names)}"
        raise ClientFileError(f"unknown {what}: {name}; {hint}")
