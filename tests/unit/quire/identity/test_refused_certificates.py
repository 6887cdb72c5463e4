"""The file of refused certificates: what it may have, and what it cuts."""

from pathlib import Path

import pytest

from quire.identity.errors import CertificateError
from quire.identity.tls import RefusedCertificates


class Connection:
    is_cut = False

    def abort(self) -> None:
        self.is_cut = True


def certificate(number: str) -> dict[str, object]:
    return {"serialNumber": number}


def test_numbers_as_openssl_prints_them_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "refused"
    path.write_text("# stolen\nserial=4D2\n\n0a:0B:0c  # of a lost laptop\nff\n")
    refused = RefusedCertificates(str(path))
    assert len(refused) == 3
    for number in ("04D2", "0A0B0C", "FF"):
        assert "refuses" in refused.refusal(Connection(), certificate(number))
    for known in (certificate("FE"), {}, None):
        assert refused.refusal(Connection(), known) == ""


def test_open_connections_of_a_number_that_is_added_are_cut(tmp_path: Path) -> None:
    path = tmp_path / "refused"
    path.write_text("")
    refused = RefusedCertificates(str(path))
    first, second = Connection(), Connection()
    assert refused.refusal(first, certificate("01")) == ""
    assert refused.refusal(second, certificate("02")) == ""
    path.write_text("01\n")
    refused.load()
    assert first.is_cut
    assert not second.is_cut


def test_a_file_that_cannot_be_read_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "refused"
    path.write_text("01\n")
    refused = RefusedCertificates(str(path))
    path.write_text("01\nserial number 2\n")
    with pytest.raises(CertificateError, match=r"line 2 of .* is not a serial number"):
        refused.load()
    path.unlink()
    with pytest.raises(CertificateError, match="cannot be read"):
        refused.load()
    assert refused.refusal(Connection(), certificate("01"))


def test_without_a_file_nothing_is_refused() -> None:
    refused = RefusedCertificates()
    refused.load()
    assert refused.state is None
    assert refused.refusal(Connection(), certificate("01")) == ""
