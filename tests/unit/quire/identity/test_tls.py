"""Contexts from files: refused with a reason, and never without TLS 1.2."""

import datetime
import os
import ssl
from pathlib import Path

import pytest
from cryptography import x509

from quire.identity.errors import CertificateError, SecretError
from quire.identity.tls import (
    ClientCertificates,
    ServerTls,
    TlsFiles,
    client_context,
    server_context,
)
from quire.local.development_certificates import CERTIFICATE_DAYS, CLOCK_SKEW, DevelopmentAuthority

NONE, REQUIRED = ClientCertificates.NONE, ClientCertificates.REQUIRED


@pytest.fixture
def files(tmp_path: Path) -> TlsFiles:
    authority = DevelopmentAuthority(tmp_path)
    own = authority.issue("server")
    return TlsFiles(str(own.certificate), str(own.key), str(authority.files.certificate))


def test_old_versions_of_tls_are_refused(files: TlsFiles) -> None:
    for context in (server_context(files, REQUIRED), client_context(files)):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_client_always_verifies(files: TlsFiles) -> None:
    context = client_context(files)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


@pytest.mark.parametrize(
    ("clients", "mode"),
    [
        (NONE, ssl.CERT_NONE),
        (ClientCertificates.REQUESTED, ssl.CERT_OPTIONAL),
        (REQUIRED, ssl.CERT_REQUIRED),
    ],
)
def test_what_a_server_wants_of_clients(
    files: TlsFiles, clients: ClientCertificates, mode: ssl.VerifyMode
) -> None:
    assert server_context(files, clients).verify_mode is mode


def test_clients_cannot_be_checked_without_authorities(files: TlsFiles) -> None:
    with pytest.raises(CertificateError, match="set tls_ca_file"):
        server_context(TlsFiles(files.certificate, files.key), REQUIRED)


def test_a_certificate_without_its_key_is_refused(files: TlsFiles) -> None:
    for tls_files in (TlsFiles(files.certificate), TlsFiles(key=files.key)):
        with pytest.raises(CertificateError, match="set both"):
            server_context(tls_files, NONE)
        with pytest.raises(CertificateError, match="set both"):
            client_context(tls_files)


def test_a_key_that_others_can_read_is_refused(files: TlsFiles) -> None:
    Path(files.key).chmod(0o604)
    with pytest.raises(SecretError, match="chmod 600"):
        server_context(files, NONE)


def test_files_that_are_missing_or_no_certificates_are_refused(
    files: TlsFiles, tmp_path: Path
) -> None:
    (tmp_path / "text").write_text("no certificate")
    for path in (str(tmp_path / "text"), str(tmp_path / "missing")):
        with pytest.raises(CertificateError, match="cannot be used for TLS"):
            server_context(TlsFiles(path, files.key), NONE)
        with pytest.raises(CertificateError, match="cannot be used for TLS"):
            client_context(TlsFiles(authorities=path))


def test_the_end_of_a_certificate_is_known(files: TlsFiles) -> None:
    certificate = x509.load_pem_x509_certificate(Path(files.certificate).read_bytes())
    end, start = certificate.not_valid_after_utc, certificate.not_valid_before_utc
    assert ServerTls(files, REQUIRED).expires_s == end.timestamp()
    assert end - start == datetime.timedelta(days=CERTIFICATE_DAYS) + CLOCK_SKEW


def test_new_files_that_cannot_be_used_leave_the_old_certificate(files: TlsFiles) -> None:
    tls = ServerTls(files, REQUIRED)
    before = tls.context
    for mode in (0o604, 0o600):
        Path(files.key).chmod(mode)
        os.utime(files.key, (mode, mode))
        assert tls.reload()
        assert bool(tls.failure) == (mode == 0o604)
        assert (tls.context is before) == bool(tls.failure)


def test_files_are_never_replaced(tmp_path: Path) -> None:
    authority = DevelopmentAuthority(tmp_path)
    authority.issue("alice")
    with pytest.raises(CertificateError, match="exists already"):
        authority.issue("alice")
    again = DevelopmentAuthority(tmp_path)
    assert again.files.certificate.read_bytes() == authority.files.certificate.read_bytes()
    assert (tmp_path / "alice-key.pem").stat().st_mode & 0o777 == 0o600
    assert (tmp_path / "ca-key.pem").stat().st_mode & 0o777 == 0o600
