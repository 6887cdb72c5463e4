"""TLS of servers: contexts from files, and new ones when the files change.

Leaves listening to `quire.server.tls_listening`, clients' contexts to `quire.identity.tls`, which
certificates are refused to `quire.identity.refused_certificates`, and making certificates to
`quire.local.development_certificates`.

Format of the files: PEM. The file of a certificate has the whole chain, the server's own first.

Invariants: TLS 1.2 or newer; a context whose new files cannot be used stays as it is, and the
reason is kept. Open connections keep the context with which they began.
"""

import datetime
import ssl
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from quire.identity.errors import CertificateError, SecurityError
from quire.identity.refused_certificates import RefusedCertificates
from quire.identity.tls import TlsFiles, load_own, unusable


class ClientCertificates(StrEnum):
    """Whether a server wants its clients' certificates."""

    NONE = "none"
    REQUESTED = "requested"
    """A client may have none; one that it sends must be valid."""
    REQUIRED = "required"


def server_context(files: TlsFiles, clients: ClientCertificates) -> ssl.SSLContext:
    """Return a context for connections from clients. Raises CertificateError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    load_own(context, files)
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
        raise unusable(files.authorities, error) from error
    is_required = clients is ClientCertificates.REQUIRED
    context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context


def expiry_s(path: str) -> float:
    """Return when the first certificate of a file expires, in seconds of Unix time. Raises
    CertificateError.
    """
    from cryptography import x509  # noqa: PLC0415 - only servers with TLS need this extra

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
    refused: RefusedCertificates = field(default_factory=RefusedCertificates)
    """Certificates of clients that are refused."""
    context: ssl.SSLContext = field(init=False)
    expires_s: float = field(init=False)
    """When the certificate expires, in seconds of Unix time."""
    failure: str = field(init=False, default="")
    """Why the changed files cannot be used; empty if they can."""
    _seen: object = field(init=False, default=None)

    def __post_init__(self) -> None:
        """Load the files. Raises SecurityError."""
        self._seen = (self.files.state, self.refused.state)
        self._load()

    def following_context(self, clients: ClientCertificates) -> ssl.SSLContext:
        """Return a context for a server that keeps one: each handshake takes the certificate that
        is loaded then.
        """
        context = server_context(self.files, clients)

        def follow(connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext) -> None:
            connection.context = self.context

        context.sni_callback = follow
        return context

    def reload(self) -> bool:
        """Load the files again if they changed; return whether there is a new context, or a new
        failure.
        """
        state = (self.files.state, self.refused.state)
        if state == self._seen:
            return False
        self._seen = state
        try:
            self.refused.load()
            self._load()
        except SecurityError as error:
            self.failure = str(error)
        else:
            self.failure = ""
        return True

    def _load(self) -> None:
        context = server_context(self.files, self.clients)
        self.expires_s = expiry_s(self.files.certificate)
        self.context = context
