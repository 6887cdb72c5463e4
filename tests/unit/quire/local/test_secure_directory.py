"""Files of a secure directory for Kafka's clients."""

import stat
from pathlib import Path

from quire.identity.client_file import read_client_file
from quire.identity.secret_files import read_secret
from quire.local.secure_directory import TOKEN_BYTES, SecureDirectory


def test_kafkas_tools_have_settings_for_the_login_and_for_the_certificate(tmp_path: Path) -> None:
    directory = SecureDirectory(tmp_path)
    directory.fill()
    keystore = tmp_path / "client-keystore.pem"
    parts = [(tmp_path / name).read_bytes() for name in ("client-key.pem", "client.pem")]
    assert keystore.read_bytes() == b"".join(parts)
    settings = Path(directory.certificate_properties_file("client"))
    assert f"ssl.keystore.location={keystore}\n" in settings.read_text()
    login = Path(directory.properties_file("client"))
    password = Path(directory.password_file("client")).read_text().strip()
    assert f'username="client" password="{password}"' in login.read_text()
    for path in (keystore, settings, login):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600, path


def test_a_directory_without_files_for_java_gets_them(tmp_path: Path) -> None:
    directory = SecureDirectory(tmp_path)
    directory.fill()
    settings = Path(directory.certificate_properties_file("client"))
    settings.unlink()
    before = (tmp_path / "client.pem").read_bytes()
    assert directory.fill() == []
    assert settings.exists()
    assert (tmp_path / "client.pem").read_bytes() == before


def test_the_token_of_admin_ports_is_made_once_and_is_private(tmp_path: Path) -> None:
    directory = SecureDirectory(tmp_path)
    file = directory.fill_admin_token()
    token = read_secret(file)
    assert len(token) > TOKEN_BYTES
    assert directory.fill_admin_token() == file
    assert read_secret(file) == token


def test_each_has_a_directory_with_what_it_needs(tmp_path: Path) -> None:
    directory = SecureDirectory(tmp_path)
    directory.fill(clients=("alice",))
    directory.fill_admin_token()
    for _ in range(2):
        directory.split(("alice",))
        names = {path.name for path in (tmp_path / "bookie").iterdir()}
        assert names == {"bookie.pem", "bookie-key.pem", "bookie.toml", "ca.pem", "admin-token"}
        assert {path.name for path in (tmp_path / "prometheus").iterdir()} == {
            "ca.pem",
            "admin-token",
        }
        own = read_client_file(str(tmp_path / "alice" / "alice.toml"))
        assert own.context is not None
        assert (tmp_path / "alice" / "alice.password").stat().st_mode & 0o777 == 0o600
        (tmp_path / "bookie" / "bookie.pem").write_text("of an older certificate")
    directory.split(("alice",))
    made = (tmp_path / "bookie.pem").read_bytes()
    assert (tmp_path / "bookie" / "bookie.pem").read_bytes() == made
