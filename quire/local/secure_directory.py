"""Directory with certificates for every role of a development cluster, and the files that use them.

Leaves making certificates to `quire.local.development_certificates`, and the servers' options to
`quire.server.server_options`.

Format: the authority (`ca.pem`); for each server role and each client `<name>.pem`,
`<name>-key.pem`, and `<name>.toml`, a client's file (`quire.identity.client_file`) that the
metadata URI names. A client also has `<name>.password`, and `<name>.properties`, the settings of
Kafka's tools for a login with it; `<name>-keystore.pem`, the key and the certificate in one file as
Java reads them, and `<name>-certificate.properties`, the settings of Kafka's tools for this
certificate. `admin-token`, if it is wanted, is the secret of the servers' admin ports.

`split` makes a directory for each server role and client, with copies of what it needs, and one for
what monitors them. None has the authority's key, or the key of another.
"""

import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quire.identity.errors import CertificateError
from quire.local.development_certificates import (
    AUTHORITY,
    LOCAL_HOSTS,
    DevelopmentAuthority,
    create_file,
)

SERVER_ROLES: Final = ("bookie", "broker", "gateway", "console")
CLIENT_NAME: Final = "client"
MONITOR_NAME: Final = "prometheus"
OWN_SUFFIXES: Final = (
    ".pem",
    "-key.pem",
    ".toml",
    ".password",
    ".properties",
    "-keystore.pem",
    "-certificate.properties",
)
"""How the names of the files of a server role or client go on."""

_CLIENT_FILE: Final = """\
[tls]
certificate = "{name}.pem"
key = "{name}-key.pem"
authorities = "ca.pem"
"""


_PROPERTIES: Final = """\
security.protocol=SASL_SSL
sasl.mechanism=SCRAM-SHA-512
sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required \\
  username="{name}" password="{password}";
ssl.truststore.type=PEM
ssl.truststore.location={authorities}
"""
_CERTIFICATE_PROPERTIES: Final = """\
security.protocol=SSL
ssl.keystore.type=PEM
ssl.keystore.location={keystore}
ssl.truststore.type=PEM
ssl.truststore.location={authorities}
"""
PASSWORD_BYTES: Final = 24
TOKEN_NAME: Final = "admin-token"
TOKEN_BYTES: Final = 32


@dataclass(frozen=True, slots=True)
class SecureDirectory:
    """A directory that `fill` has filled."""

    path: Path

    def client_file(self, name: str) -> str:
        """Return the path of a client's file; server roles have one too, for their own clients."""
        return str(self.path / f"{name}.toml")

    def password_file(self, name: str) -> str:
        """Return the path of the password of a client's user."""
        return str(self.path / f"{name}.password")

    def properties_file(self, name: str) -> str:
        """Return the path of the settings of Kafka's tools for a login."""
        return str(self.path / f"{name}.properties")

    def certificate_properties_file(self, name: str) -> str:
        """Return the path of the settings of Kafka's tools for a client's certificate."""
        return str(self.path / f"{name}-certificate.properties")

    def console_token_file(self) -> str:
        """Return the path of the token for logins at the console, which is made if missing."""
        path = self.path / "console.token"
        if not path.exists():
            create_file(path, f"{secrets.token_hex(PASSWORD_BYTES)}\n".encode(), 0o600)
        return str(path)

    def certificate_options(self, role: str) -> dict[str, str]:
        """Return the options that name the certificates of a server with this role."""
        return {
            "tls_cert_file": str(self.path / f"{role}.pem"),
            "tls_key_file": str(self.path / f"{role}-key.pem"),
            "tls_ca_file": str(self.path / f"{AUTHORITY}.pem"),
        }

    def fill(self, hosts: Sequence[str] = (), clients: Sequence[str] = (CLIENT_NAME,)) -> list[str]:
        """Make what is missing, for servers on this machine and on `hosts`; return the names of the
        new certificates. Raises CertificateError.
        """
        authority = DevelopmentAuthority(self.path)
        made: list[str] = []
        for name in (*SERVER_ROLES, *clients):
            if "/" in name or name == AUTHORITY or name.startswith("."):
                raise CertificateError(f"{name!r} cannot be the name of a certificate")
            if not authority.files_of(name).certificate.exists():
                own = (*LOCAL_HOSTS, *hosts) if name in SERVER_ROLES else ()
                authority.issue(name, own)
                Path(self.client_file(name)).write_text(_CLIENT_FILE.format(name=name))
                if name not in SERVER_ROLES:
                    self._fill_login(name)
                made.append(name)
            if name not in SERVER_ROLES and not self._has_keystore(name):
                self._fill_keystore(name)
        return made

    def fill_admin_token(self) -> str:
        """Make the token of admin ports if there is none; return its file.

        Raises CertificateError.
        """
        file = self.path / TOKEN_NAME
        if not file.exists():
            create_file(file, f"{secrets.token_urlsafe(TOKEN_BYTES)}\n".encode(), 0o600)
        return str(file)

    def split(self, clients: Sequence[str] = (CLIENT_NAME,)) -> list[str]:
        """Copy what each server role, each client and what monitors them needs to a directory of
        its own, and return their paths. Raises CertificateError.
        """
        shared = (f"{AUTHORITY}.pem", TOKEN_NAME)
        made: list[str] = []
        for owner in (*SERVER_ROLES, *clients, MONITOR_NAME):
            directory = self.path / owner
            directory.mkdir(mode=0o700, exist_ok=True)
            for name in (*shared, *(f"{owner}{suffix}" for suffix in OWN_SUFFIXES)):
                if (self.path / name).exists():
                    _copy(self.path / name, directory / name)
            made.append(str(directory))
        return made

    def _has_keystore(self, name: str) -> bool:
        """Return whether the files for Java exist; a call that was interrupted left none."""
        return Path(self.certificate_properties_file(name)).exists()

    def _fill_login(self, name: str) -> None:
        password = secrets.token_hex(PASSWORD_BYTES)
        properties = _PROPERTIES.format(
            name=name, password=password, authorities=self.path / f"{AUTHORITY}.pem"
        )
        create_file(Path(self.password_file(name)), f"{password}\n".encode(), 0o600)
        create_file(Path(self.properties_file(name)), properties.encode(), 0o600)

    def _fill_keystore(self, name: str) -> None:
        keystore = self.path / f"{name}-keystore.pem"
        parts = (self.path / f"{name}-key.pem", self.path / f"{name}.pem")
        keystore.unlink(missing_ok=True)  # of a call that was interrupted
        create_file(keystore, b"".join(part.read_bytes() for part in parts), 0o600)
        properties = _CERTIFICATE_PROPERTIES.format(
            keystore=keystore, authorities=self.path / f"{AUTHORITY}.pem"
        )
        create_file(Path(self.certificate_properties_file(name)), properties.encode(), 0o600)


def _copy(source: Path, target: Path) -> None:
    content = source.read_bytes()
    if not target.exists() or target.read_bytes() != content:
        target.unlink(missing_ok=True)
        create_file(target, content, stat.S_IMODE(source.stat().st_mode))
