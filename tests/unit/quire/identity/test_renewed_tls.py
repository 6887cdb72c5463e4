"""New connections of a client present the certificate that its files have by then."""

import logging
import ssl
from pathlib import Path

import pytest

from quire.identity.errors import CertificateError
from quire.identity.tls import FILES_CHECK_S, RenewedContext, TlsFiles, fixed
from tests.support.security.client_certificates import RenewedFiles

WRITTEN_S = 1_000.0
NEXT_S = WRITTEN_S + FILES_CHECK_S


def presented(client: ssl.SSLContext, server: ssl.SSLContext) -> bytes | None:
    """Return the client's certificate, as the server got it. Raises SSLError if it refuses it."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = (
        client.wrap_bio(to_client, to_server, server_hostname="localhost"),
        server.wrap_bio(to_server, to_client, server_side=True),
    )
    waiting = [*ends]
    while waiting:
        for end in [*waiting]:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            waiting.remove(end)
    return ends[1].getpeercert(binary_form=True)


def test_a_renewed_certificate_is_presented_instead_of_an_expired_one(tmp_path: Path) -> None:
    renewed = RenewedFiles(tmp_path)
    contexts = RenewedContext(renewed.files)
    with pytest.raises(ssl.SSLError, match="expired"):
        presented(contexts(WRITTEN_S), renewed.server())
    renewed.renew()
    assert presented(contexts(NEXT_S), renewed.server()) == renewed.new_certificate


def test_the_files_are_looked_at_after_a_pause(tmp_path: Path) -> None:
    renewed = RenewedFiles(tmp_path)
    contexts = RenewedContext(renewed.files)
    before = contexts(WRITTEN_S)
    renewed.renew()
    assert contexts(NEXT_S - 0.1) is before
    after = contexts(NEXT_S)
    assert after is not before
    assert contexts(NEXT_S + FILES_CHECK_S) is after, "nothing changed"


def test_files_that_do_not_fit_leave_the_old_ones_in_use(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    renewed = RenewedFiles(tmp_path)
    contexts = RenewedContext(renewed.files)
    before = contexts(WRITTEN_S)
    renewed.break_files()
    assert contexts(NEXT_S) is before
    assert contexts(NEXT_S + FILES_CHECK_S) is before
    (line,) = [
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    ]
    assert renewed.files.key in line
    renewed.renew()
    after = contexts(NEXT_S + 2 * FILES_CHECK_S)
    assert presented(after, renewed.server()) == renewed.new_certificate


def test_a_key_that_others_can_read_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    renewed = RenewedFiles(tmp_path)
    contexts = RenewedContext(renewed.files)
    before = contexts(WRITTEN_S)
    renewed.renew()
    Path(renewed.files.key).chmod(0o644)
    assert contexts(NEXT_S) is before
    assert "chmod 600" in caplog.text


def test_a_missing_file_leaves_the_old_ones_in_use(tmp_path: Path) -> None:
    renewed = RenewedFiles(tmp_path)
    contexts = RenewedContext(renewed.files)
    before = contexts(WRITTEN_S)
    Path(renewed.files.certificate).unlink()
    assert contexts(NEXT_S) is before


def test_the_first_files_must_be_usable(tmp_path: Path) -> None:
    with pytest.raises(CertificateError):
        RenewedContext(TlsFiles(authorities=str(tmp_path / "missing")))


def test_the_context_of_an_application_stays() -> None:
    context = ssl.create_default_context()
    assert fixed(context)(WRITTEN_S) is context
