"""Access to ZooKeeper: TLS, and the login of one process.

Format of an identity: as in ZooKeeper's access lists, with the scheme first. A digest identity is
`digest:user:hash`, and the hash is base64 of SHA-1 of `user:password`. A certificate's is `x509:`
and its subject in the form of RFC 2253.

Invariants: the password comes only from a file of its owner; no error contains it. A login sends it
as it is, so it is sent only over TLS, to a loopback address, or where the file allows more. Members
of the cluster see the hash of each other's password, so a password is long.

Source: ZooKeeper 3.9, programmer's guide, "ZooKeeper access control using ACLs".
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from ssl import SSLContext
from typing import Final

from quire.addresses import is_loopback
from quire.identity.errors import ClientFileError, SecretError
from quire.identity.secret_files import read_secret
from quire.identity.tls import TlsFiles, client_context

PASSWORD_CHARACTERS_MIN: Final = 16
"""A shorter one could be found from its hash."""
DIGEST: Final = "digest"
X509: Final = "x509"

_USER: Final = re.compile(r"[A-Za-z0-9._-]{1,100}")
_PASSWORD: Final = re.compile(r"[!-~]+")


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    """How one process connects to ZooKeeper, and as which user."""

    tls: TlsFiles | None = None
    """Files for TLS; None for connections without it."""
    user: str = ""
    """Name of the digest login; empty if there is none."""
    password_file: str = ""
    allow_plaintext: bool = False
    """Whether the password may be sent without TLS to other machines, in a closed network."""

    @property
    def has_login(self) -> bool:
        """Whether ZooKeeper knows this process by a user or a certificate."""
        return bool(self.user or (self.tls is not None and self.tls.certificate))

    @property
    def context(self) -> SSLContext | None:
        """Context for connections. Raises SecurityError."""
        return None if self.tls is None else client_context(self.tls)

    @property
    def credential(self) -> str:
        """`user:password`; empty without a digest login. Raises SecurityError."""
        if not self.user:
            return ""
        return f"{self.user}:{read_password(self.password_file)}"

    def check_may_send(self, hosts: Sequence[str]) -> None:
        """Raise ClientFileError if the password would cross a network that can be read."""
        if not self.user or self.tls is not None or self.allow_plaintext:
            return
        for host in hosts:
            if not is_loopback(host):
                raise ClientFileError(
                    f"the password of ZooKeeper's user {self.user} would be sent to {host} without "
                    "TLS: write tls = true below [zookeeper], or allow_plaintext = true for a "
                    "closed network"
                )

    @property
    def identity(self) -> str:
        """The digest login's identity; empty without one. Raises SecurityError."""
        credential = self.credential
        return digest_identity(credential) if credential else ""


NO_ACCESS: Final = ZooKeeperAccess()


def digest_identity(credential: str) -> str:
    """Return the identity of `user:password`."""
    digest = hashlib.sha1(credential.encode(), usedforsecurity=False).digest()
    user = credential.partition(":")[0]
    return f"{DIGEST}:{user}:{base64.b64encode(digest).decode()}"


def check_user(user: str) -> str:
    """Return the name of a digest login. Raises ClientFileError for one that is not plain."""
    if _USER.fullmatch(user) is None:
        raise ClientFileError(
            f"{user[:100]!r} cannot be a user of ZooKeeper: use 1 to 100 letters, digits, '.', '_' "
            "and '-'"
        )
    return user


def read_password(path: str) -> str:
    """Return the password of a digest login from its file. Raises SecretError."""
    password = read_secret(path)
    if len(password) < PASSWORD_CHARACTERS_MIN:
        raise SecretError(
            path,
            f"its password has fewer than {PASSWORD_CHARACTERS_MIN} characters: make a random one, "
            "for example with `openssl rand -hex 32`",
        )
    if _PASSWORD.fullmatch(password) is None:
        raise SecretError(path, "its password has other characters than printable ASCII")
    return password
