"""TLS of clients: contexts from files. What servers have too.

Leaves servers' contexts to `quire.identity.server_tls`, clients' new files to
`quire.identity.renewed_tls`, and whose a certificate is to `quire.identity.certificate_names`.

Format of the files: PEM. The file of a certificate has the whole chain, the client's own first.

Invariants: TLS 1.2 or newer; a client always verifies the server's certificate and name.
"""

import contextlib
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quire.identity.errors import CertificateError
from quire.identity.secret_files import check_private

FILES_CHECK_S: Final = 10.0
"""Least pause between two looks at the files for TLS of one server or client, in seconds."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files of one server or client."""

    certificate: str = ""
    key: str = ""
    authorities: str = ""
    """Certificates of the authorities that are trusted. Empty: those of the system for a server's
    certificate, and none for a client's.
    """

    def __bool__(self) -> bool:
        return bool(self.certificate or self.key or self.authorities)

    @property
    def paths(self) -> tuple[Path, ...]:
        """The files that are given."""
        return tuple(Path(each) for each in (self.certificate, self.key, self.authorities) if each)

    @property
    def shown(self) -> str:
        """The paths of the files that are given, for messages."""
        return ", ".join(map(str, self.paths))

    @property
    def state(self) -> tuple[tuple[int, int, int], ...]:
        """What changes when the files are written or replaced."""
        found: list[tuple[int, int, int]] = []
        for path in self.paths:
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a context for connections to servers, with this client's certificate if it has one.
    Raises CertificateError.
    """
    try:
        context = ssl.create_default_context(cafile=files.authorities or None)
    except (OSError, ssl.SSLError) as error:
        raise unusable(files.authorities, error) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.certificate or files.key:
        load_own(context, files)
    return context


def load_own(context: ssl.SSLContext, files: TlsFiles) -> None:
    """Load the own certificate and key into a context. Raises CertificateError, SecretError."""
    if not files.certificate or not files.key:
        raise CertificateError("tls_cert_file and tls_key_file belong together: set both")
    check_private(files.key)
    try:
        context.load_cert_chain(files.certificate, files.key, password=_refuse_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise unusable(f"{files.certificate} with {files.key}", error) from error


def _refuse_password() -> str:
    """Refuse a key with a password: OpenSSL would ask for it at the terminal."""
    raise ValueError("the key is encrypted: give one without a password")


def unusable(what: str, error: Exception) -> CertificateError:
    """Return the error for files that OpenSSL refuses."""
    return CertificateError(f"{what} cannot be used for TLS ({error})")
