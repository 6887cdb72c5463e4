"""Files of a client whose certificate is renewed, and servers that require certificates."""

import shutil
import ssl
from pathlib import Path

from quire.identity.tls import ClientCertificates, TlsFiles, server_context
from quire.local.development_certificates import DevelopmentAuthority, NamedFiles
from quire.server.process import wall_clock_ms

TWO_YEARS_MS = 2 * 365 * 24 * 3_600_000
REQUIRED = ClientCertificates.REQUIRED


class RenewedFiles:
    """A client's files, with an expired certificate; another authority has issued a new one."""

    def __init__(self, directory: Path) -> None:
        old = DevelopmentAuthority(directory / "old", lambda: wall_clock_ms() - TWO_YEARS_MS)
        self._new = DevelopmentAuthority(directory / "new")
        own = old.issue("client")
        self._renewed = self._new.issue("client")
        self._server = self._new.issue("server")
        self._authorities = directory / "authorities.pem"
        both = (old.files.certificate, self._new.files.certificate)
        self._authorities.write_bytes(b"".join(path.read_bytes() for path in both))
        self.files = _files(own, self._authorities)
        """What the client was started with."""

    def server(self) -> ssl.SSLContext:
        """Return the context of a server that requires certificates of either authority."""
        return server_context(_files(self._server, self._authorities), REQUIRED)

    def break_files(self) -> None:
        """Replace the key alone, so that the files do not fit."""
        shutil.copy(self._renewed.key, self.files.key)

    def renew(self) -> None:
        """Replace the certificate and its key."""
        self.break_files()
        shutil.copy(self._renewed.certificate, self.files.certificate)

    @property
    def new_certificate(self) -> bytes:
        """The certificate that the client has after `renew`, as DER."""
        return ssl.PEM_cert_to_DER_cert(self._renewed.certificate.read_text())


def _files(own: NamedFiles, authorities: Path) -> TlsFiles:
    return TlsFiles(str(own.certificate), str(own.key), str(authorities))
