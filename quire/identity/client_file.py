"""File with the identity of a client: one for the command line, for Spark, for the servers' own
clients, and for Kafka's Python client.

Format: TOML. `[tls]` has `certificate`, `key` and `authorities`, each a PEM file. An empty `[tls]`
uses the authorities of the system. `[admin]` has `token_file`, the secret for the servers' admin
ports; `allow_plaintext` is true if it may be sent without TLS, to servers of this machine alone.
`[sasl]` has `mechanism` (SCRAM-SHA-512, SCRAM-SHA-256, or PLAIN for brokers alone), `user` and
`password_file`, for logins at brokers and bookies. `[zookeeper]` has `tls` (true: ZooKeeper is
reached by TLS with the files of `[tls]`, or with its own `certificate`, `key` and `authorities`),
and a digest login: `user` and `password_file`; `allow_plaintext` is true if the password may be
sent without TLS. A path is relative to the directory of this file.
"""

import difflib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from ssl import SSLContext
from typing import Any, Final

from quire.identity.errors import ClientFileError, SecretError
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl_access import PLAIN_NEEDS_TLS, SaslAccess, sasl_access
from quire.identity.secret_files import read_bounded, read_secret
from quire.identity.tls import ContextSource, RenewedContext, TlsFiles, client_context
from quire.identity.zookeeper_access import NO_ACCESS, ZooKeeperAccess, check_user

FILE_BYTES_MAX: Final = 64 * 1024
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "tls": ("certificate", "key", "authorities"),
    "admin": ("token_file", "allow_plaintext"),
    "sasl": ("mechanism", "user", "password_file"),
    "zookeeper": (
        "tls",
        "certificate",
        "key",
        "authorities",
        "user",
        "password_file",
        "allow_plaintext",
    ),
}
"""Tables of the file, each with its names."""
NO_PATHS: Final[Mapping[str, type]] = {
    "tls": bool,
    "user": str,
    "mechanism": str,
    "allow_plaintext": bool,
}
"""Names whose value is not a path, with the type of the value."""


@dataclass(frozen=True, slots=True)
class ClientFile:
    """Identity of a client."""

    tls: TlsFiles | None = None
    """Files for TLS; None if the client uses none."""
    admin_token_file: str = ""
    """File with the secret for admin ports; empty if there is none."""
    may_show_token: bool = False
    """Whether the secret may be sent to a port of this machine without TLS."""
    sasl: SaslAccess | None = None
    """Login at brokers and bookies; None if there is none."""
    zookeeper: ZooKeeperAccess = NO_ACCESS
    """TLS and login of connections to ZooKeeper."""

    @property
    def admin_token(self) -> str:
        """Secret for admin ports. Raises SecretError."""
        return read_secret(self.admin_token_file) if self.admin_token_file else ""

    @property
    def context(self) -> SSLContext | None:
        """Context for a connection that begins now. Raises SecurityError."""
        return None if self.tls is None else client_context(self.tls)

    @property
    def contexts(self) -> ContextSource | None:
        """Contexts for connections of a process that runs for long. Raises SecurityError."""
        return None if self.tls is None else RenewedContext(self.tls)


NO_IDENTITY: Final = ClientFile()


def identity_in(path: str) -> ClientFile:
    """Return the identity that a client's file describes; none for an empty path. Raises
    ClientFileError.
    """
    return read_client_file(path) if path else NO_IDENTITY


def zookeeper_access_of(path: str) -> ZooKeeperAccess:
    """Return what a client's file says of ZooKeeper; no TLS and no login for an empty path. Raises
    ClientFileError.
    """
    return identity_in(path).zookeeper


def check_client_file(path: str) -> None:
    """Read a client's file and every file that it names, if there is one. Raises SecurityError."""
    identity = identity_in(path)
    sasl, zookeeper = identity.sasl, identity.zookeeper
    # Each of them reads its files when it is used.
    _ = identity.context, zookeeper.context, identity.admin_token, zookeeper.credential
    if sasl is not None:
        _ = sasl.password


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
    tables = {name: _values(name, document[name], directory) for name in TABLES if name in document}
    tls, admin = tables.get("tls"), tables.get("admin", {})
    files = None if tls is None else _files(tls)
    zookeeper = _zookeeper(tables["zookeeper"], files) if "zookeeper" in tables else NO_ACCESS
    sasl = None
    if "sasl" in tables:
        sasl = sasl_access(*(_text(tables["sasl"], table) for table in TABLES["sasl"]))
    may_show = bool(admin.get("allow_plaintext"))
    return ClientFile(files, _text(admin, "token_file"), may_show, sasl, zookeeper)


def _files(table: Mapping[str, str | bool]) -> TlsFiles:
    names = ("certificate", "key", "authorities")
    return TlsFiles(*(_text(table, name) for name in names))


def _zookeeper(table: Mapping[str, str | bool], shared: TlsFiles | None) -> ZooKeeperAccess:
    """Return the access of `[zookeeper]`, with the files of `[tls]` if it has none of its own."""
    files, user = _files(table), _text(table, "user")
    password_file = _text(table, "password_file")
    if files and not table.get("tls"):
        raise ClientFileError("[zookeeper] has files for TLS: write tls = true there too")
    if bool(files.certificate) != bool(files.key):
        raise ClientFileError("[zookeeper] needs both certificate and key, or neither")
    if bool(user) != bool(password_file):
        raise ClientFileError("[zookeeper] needs both user and password_file, or neither")
    tls = (files or shared or TlsFiles()) if table.get("tls") else None
    allows = bool(table.get("allow_plaintext"))
    return ZooKeeperAccess(tls, check_user(user) if user else "", password_file, allows)


def _text(table: Mapping[str, str | bool], name: str) -> str:
    return str(table.get(name, ""))


def _values(title: str, table: object, directory: Path) -> dict[str, str | bool]:
    """Return the values of one table, with complete paths."""
    if not isinstance(table, dict):
        raise ClientFileError(f"{title} is not a table: write [{title}]")
    values: dict[str, str | bool] = {}
    for name, value in table.items():
        _known(name, TABLES[title], f"name in [{title}]")
        kind = NO_PATHS.get(name)
        if kind is bool and not isinstance(value, bool):
            raise ClientFileError(f"{name} in [{title}] must be true or false")
        if kind is not bool and not (isinstance(value, str) and value):
            what = "a text" if kind is str else "the path of a file"
            raise ClientFileError(f"{name} must be {what}")
        values[name] = value if kind is not None else str(directory / value)
    return values


def _known(name: str, names: Sequence[str], what: str) -> None:
    if name not in names:
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
        hint = f"did you mean {close[0]}?" if close else f"known are: {', '.join(names)}"
        raise ClientFileError(f"unknown {what}: {name}; {hint}")


def kafka_settings(identity: ClientFile) -> dict[str, Any]:
    """Return arguments of `KafkaProducer` and `KafkaConsumer`. Raises SecurityError."""
    context, sasl = identity.context, identity.sasl
    settings: dict[str, Any] = {} if context is None else {"ssl_context": context}
    if sasl is None:
        return settings if context is None else {**settings, "security_protocol": "SSL"}
    if context is None and sasl.mechanism is Mechanism.PLAIN:
        raise ClientFileError(PLAIN_NEEDS_TLS)
    return {
        **settings,
        "security_protocol": "SASL_PLAINTEXT" if context is None else "SASL_SSL",
        "sasl_mechanism": sasl.mechanism.value,
        "sasl_plain_username": sasl.user,
        "sasl_plain_password": sasl.password,
    }
