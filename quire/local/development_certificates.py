"""Authority and certificates for development and tests.

Leaves certificates of a company to its own authority: Quire needs only their files.

Format of the directory: `ca.pem` and `ca-key.pem` of the authority; `<name>.pem` and
`<name>-key.pem` of each server or client. Keys are readable by their owner alone.

Invariants: an existing file is never replaced; the authority signs no other authority.
"""

import datetime
import ipaddress
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from quire.identity.errors import CertificateError
from quire.server.process import wall_clock_ms

AUTHORITY: Final = "ca"
AUTHORITY_DAYS: Final = 3_650
CERTIFICATE_DAYS: Final = 397
LOCAL_HOSTS: Final = ("localhost", "127.0.0.1", "::1")
ORGANIZATION: Final = "quire development"
CLOCK_SKEW: Final = datetime.timedelta(days=1)
"""How long before it was made a certificate is valid, for machines whose clock is behind, and for
a clock that was ahead and is set back.
"""

_Key = ec.EllipticCurvePrivateKey


@dataclass(frozen=True, slots=True)
class NamedFiles:
    """Files of one certificate."""

    certificate: Path
    key: Path


class DevelopmentAuthority:
    """Certificate authority whose key is in a directory."""

    def __init__(self, directory: Path, clock_ms: Callable[[], int] = wall_clock_ms) -> None:
        """Open the authority of a directory, or make one. Raises CertificateError."""
        self._directory = directory
        self._clock_ms = clock_ms
        self.files = self.files_of(AUTHORITY)
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        if not self.files.certificate.exists():
            self._make_authority()
        try:
            key = serialization.load_pem_private_key(self.files.key.read_bytes(), None)
            self._certificate = x509.load_pem_x509_certificate(self.files.certificate.read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise CertificateError(
                f"{directory} has no authority that can be used ({error})"
            ) from error
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise CertificateError(f"{self.files.key} is not a key of this command")
        self._key: _Key = key

    def files_of(self, name: str) -> NamedFiles:
        """Return the files of a certificate, which need not exist."""
        return NamedFiles(self._directory / f"{name}.pem", self._directory / f"{name}-key.pem")

    def issue(self, name: str, hosts: Sequence[str] = LOCAL_HOSTS) -> NamedFiles:
        """Make a certificate with `CN=<name>` for a server on these hosts, and for its client's
        side. Raises CertificateError if its files exist.
        """
        files = self.files_of(name)
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            self._builder(_name(name), self._certificate.subject, key, CERTIFICATE_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if hosts:
            names = x509.SubjectAlternativeName([_alternative(host) for host in hosts])
            builder = builder.add_extension(names, critical=False)
        _write(files, builder.sign(self._key, hashes.SHA256()), key)
        return files

    def _make_authority(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("quire development authority")
        builder = (
            self._builder(name, name, key, AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
        )
        _write(self.files, builder.sign(key, hashes.SHA256()), key)

    def _builder(
        self, subject: x509.Name, issuer: x509.Name, key: _Key, days: int
    ) -> x509.CertificateBuilder:
        now = datetime.datetime.fromtimestamp(self._clock_ms() // 1_000, datetime.UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - CLOCK_SKEW)
            .not_valid_after(now + datetime.timedelta(days=days))
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
        )


def _name(common_name: str) -> x509.Name:
    return x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, ORGANIZATION),
            x509.NameAttribute(NameOID.COMMON_NAME, common_name),
        ]
    )


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _write(files: NamedFiles, certificate: x509.Certificate, key: _Key) -> None:
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    create_file(files.key, secret, 0o600)
    create_file(files.certificate, certificate.public_bytes(serialization.Encoding.PEM), 0o644)


def create_file(path: Path, content: bytes, mode: int) -> None:
    """Write a new file, whose mode is set before its content. Raises CertificateError."""
    try:
        path.touch(mode, exist_ok=False)
        path.write_bytes(content)
    except FileExistsError as error:
        raise CertificateError(f"{path} exists already: remove it, or use another name") from error
    except OSError as error:
        raise CertificateError(f"{path} cannot be written ({error.strerror})") from error
