"""TLS of clients and servers: contexts from files, new ones when the files change, and certificates
that are refused.

Format of the files: PEM. The file of a certificate has the whole chain, the client's own first.

Format of the files: PEM. The file of a certificate has the whole chain, the server's own first.

Format of the file: text. A line has one serial number in hexadecimal, as `openssl x509 -noout
-serial` prints it (`serial=4D2`), with or without colons; what follows `#` is a comment.
"""

import contextlib
import datetime
import logging
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from ssl import SSLContext
from typing import Final, Protocol
from weakref import WeakKeyDictionary

from quire.identity.errors import CertificateError, SecretError, SecurityError
from quire.identity.secret_files import check_private, read_bounded

FILES_CHECK_S: Final = 10.0
"""Least pause between two looks at the files for TLS of one server or client, in seconds."""
ContextSource = Callable[[float], SSLContext]
"""Returns the context for a connection that begins at a time of the event loop, in seconds."""
_log: Final = logging.getLogger(__name__)
FILE_BYTES_MAX: Final = 4 * 1024 * 1024
PREFIX: Final = "serial="


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Files of one server or client.

    TLS 1.2 or newer; a client always verifies the server's certificate and name.
    """

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
        return tuple(Path(name) for name in (self.certificate, self.key, self.authorities) if name)

    @property
    def shown(self) -> str:
        """The paths of the files that are given, for messages."""
        return ", ".join(map(str, self.paths))

    @property
    def state(self) -> tuple[tuple[int, int, int], ...]:
        """What changes when the files are written or replaced."""
        states: list[tuple[int, int, int]] = []
        for path in self.paths:
            with contextlib.suppress(OSError):
                status = path.stat()
                states.append((status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(states)


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


class RenewedContext:
    """Contexts of one client for its new connections: a `ContextSource`.

    The files are looked at only when a connection begins, and at most once in FILES_CHECK_S; files
    that cannot be used are logged once, and the context stays as it is. Open connections keep the
    context with which they began.
    """

    def __init__(self, files: TlsFiles) -> None:
        """Load the files. Raises SecurityError."""
        self._files = files
        self._seen = files.state
        self._context = client_context(files)
        self._checked_at: float | None = None

    def __call__(self, now: float) -> SSLContext:
        """Return the context for a connection that begins now."""
        if self._checked_at is None or now - self._checked_at >= FILES_CHECK_S:
            self._checked_at = now
            self._check()
        return self._context

    def _check(self) -> None:
        state = self._files.state
        if state == self._seen:
            return
        self._seen = state
        try:
            self._context = client_context(self._files)
        except SecurityError as error:
            _log.warning("new files for TLS cannot be used, the old ones stay in use: %s", error)
        else:
            _log.info("new files for TLS are in use: %s", self._files.shown)


def fixed(context: SSLContext) -> ContextSource:
    """Return a source of one context only, which an application made."""
    return lambda _now: context


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


class Connection(Protocol):
    """What is open to a client: a transport."""

    def abort(self) -> None:
        """End it at once."""


class RefusedCertificates:
    """The list of one server, and its open connections of clients with certificates.

    A certificate whose number is in the file begins no connection, and open connections of a number
    that is added are cut. A file that cannot be read changes nothing: the list before it stays. A
    number counts whatever authority signed: too much is refused rather than too little.
    """

    def __init__(self, path: str = "") -> None:
        """Read the file; without one nothing is refused. Raises CertificateError."""
        self._path = path
        self._numbers: frozenset[int] = frozenset()
        self._open: WeakKeyDictionary[Connection, int] = WeakKeyDictionary()
        self.load()

    def __len__(self) -> int:
        """Return the number of certificates that are refused."""
        return len(self._numbers)

    @property
    def state(self) -> tuple[int, int, int] | None:
        """What changes when the file is written or replaced; None without one."""
        with contextlib.suppress(OSError):
            if self._path:
                status = Path(self._path).stat()
                return status.st_ino, status.st_mtime_ns, status.st_size
        return None

    def load(self) -> None:
        """Read the file again, and cut the connections that it refuses now. Raises
        CertificateError.
        """
        if not self._path:
            return
        self._numbers = _numbers_in(self._path)
        for connection, number in list(self._open.items()):
            if number in self._numbers:
                connection.abort()

    def refusal(self, connection: Connection, certificate: Mapping[str, object] | None) -> str:
        """Return why the certificate of a client is refused; empty if it is not, or there is none.
        A connection that is not refused is kept, to cut it later.
        """
        if not self._path or not certificate:
            return ""
        number = int(str(certificate["serialNumber"]), 16)
        if number in self._numbers:
            return f"{self._path} refuses the certificate with the serial number {number:X}"
        self._open[connection] = number
        return ""


@dataclass(slots=True)
class ServerTls:
    """TLS of one server: the context for new connections.

    TLS 1.2 or newer; a context whose new files cannot be used stays as it is, and the reason is
    kept. Open connections keep the context with which they began.
    """

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


def _numbers_in(path: str) -> frozenset[int]:
    try:
        text = read_bounded(path, FILE_BYTES_MAX, is_private=False).decode()
    except (SecretError, ValueError) as error:
        raise CertificateError(f"the refused certificates cannot be read: {error}") from error
    numbers = set[int]()
    for count, line in enumerate(text.splitlines(), start=1):
        words = line.partition("#")[0].strip()
        if not words:
            continue
        try:
            numbers.add(int(words.removeprefix(PREFIX).replace(":", ""), 16))
        except ValueError:
            raise CertificateError(
                f"line {count} of {path} is not a serial number in hexadecimal, as `openssl x509"
                " -noout -serial` prints it"
            ) from None
    return frozenset(numbers)
