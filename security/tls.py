"""TLS of servers and clients: contexts from files, and new ones when the files change.

Leaves listening to `serving.tls_listening`, whose a certificate is to `security.certificate_names`,
and making certificates to `quire.development_certificates`.

Format of the files: PEM. The file of a certificate has the whole chain, the server's own first.

Invariants: TLS 1.2 or newer; a client always verifies the server's certificate and name; a context
whose new files cannot be used stays as it is, and the reason is kept. Open connections keep the
context with which they began.
"""

import contextlib
import datetime
import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from cryptography import x509

from security.errors import CertificateError
from security.secret_files import check_private


class ClientCertificates(StrEnum):
    """Whether a server wants its clients' certificates."""

    NONE = "none"
    REQUESTED = "requested"
    """A client may have none; one that it sends must be valid."""
    REQUIRED = "required"


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


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """Return a context for connections to servers, with this client's certificate if it has one.
    Raises CertificateError.
    """
    try:
        context = ssl.create_default_context(cafile=files.authorities or None)
    except (OSError, ssl.SSLError) as error:
        raise _unusable(files.authorities, error) from error
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if files.certificate or files.key:
        _load_own(context, files)
    return context


def server_context(files: TlsFiles, clients: ClientCertificates) -> ssl.SSLContext:
    """Return a context for connections from clients. Raises CertificateError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    _load_own(context, files)
    if clients is ClientCertificates.NONE:
        return context
    if not files.authorities:
        raise CertificateError(
            "clients' certificates cannot be checked without authorities: set tls_ca_file, or "
            "tls_client_certificates to none"
        )
    try:
        context.load_verify_locations(cafile=files.authorities)
    except (OSError, ssl.SSLError) as error:
        raise _unusable(files.authorities, error) from error
    is_required = clients is ClientCertificates.REQUIRED
    context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


def _load_own(context: ssl.SSLContext, files: TlsFiles) -> None:
    if not files.certificate or not files.key:
        raise CertificateError("tls_cert_file and tls_key_file belong together: set both")
    check_private(Path(files.key))
    try:
        context.load_cert_chain(files.certificate, files.key, password=_refuse_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise _unusable(f"{files.certificate} with {files.key}", error) from error


def _refuse_password() -> str:
    """Refuse a key with a password: OpenSSL would ask for it at the terminal."""
    raise ValueError("the key is encrypted: give one without a password")


def _unusable(what: str, error: Exception) -> CertificateError:
    return CertificateError(f"{what} cannot be used for TLS ({error})")


def expiry_s(path: str) -> float:
    """Return when the first certificate of a file expires, in seconds of Unix time. Raises
    CertificateError.
    """
    try:
        certificate = x509.load_pem_x509_certificate(Path(path).read_bytes())
    except (OSError, ValueError) as error:
        raise CertificateError(f"the certificate {path} cannot be read ({error})") from error
    return certificate.not_valid_after_utc.replace(tzinfo=datetime.UTC).timestamp()


@dataclass(slots=True)
class ServerTls:
    """TLS of one server: the context for new connections."""

    files: TlsFiles
    clients: ClientCertificates
    context: ssl.SSLContext = field(init=False)
    expires_s: float = field(init=False)
    """When the certificate expires, in seconds of Unix time."""
    failure: str = field(init=False, default="")
    """Why the changed files cannot be used; empty if they can."""
    _seen: tuple[tuple[int, int, int], ...] = field(init=False, default=())

    def __post_init__(self) -> None:
        """Load the files. Raises CertificateError."""
        self._seen = self._state()
        self._load()

    def reload(self) -> bool:
        """Load the files again if they changed; return whether there is a new context, or a new
        failure.
        """
        state = self._state()
        if state == self._seen:
            return False
        self._seen = state
        try:
            self._load()
        except CertificateError as error:
            self.failure = str(error)
        else:
            self.failure = ""
        return True

    def _load(self) -> None:
        context = server_context(self.files, self.clients)
        self.expires_s = expiry_s(self.files.certificate)
        self.context = context

    def _state(self) -> tuple[tuple[int, int, int], ...]:
        """Return what changes when the files are written or replaced."""
        found: list[tuple[int, int, int]] = []
        for path in self.files.paths:
            with contextlib.suppress(OSError):
                status = path.stat()
                found.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)
