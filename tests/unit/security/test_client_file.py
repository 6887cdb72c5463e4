"""The file with a client's identity."""

from pathlib import Path

import pytest

from quire.local.development_certificates import DevelopmentAuthority
from security.client_file import (
    NO_IDENTITY,
    ClientFile,
    context_of,
    parse_client_file,
    read_client_file,
)
from security.errors import ClientFileError
from security.tls import TlsFiles

HERE = Path("/etc/quire")


def test_paths_are_relative_to_the_file() -> None:
    text = """
        [tls]
        certificate = "a.pem"
        key = "/keys/a.pem"
        authorities = "ca.pem"
        [admin]
        token_file = "token"
    """
    files = TlsFiles("/etc/quire/a.pem", "/keys/a.pem", "/etc/quire/ca.pem")
    assert parse_client_file(text, HERE) == ClientFile(files, "/etc/quire/token")


def test_parts_that_are_missing() -> None:
    assert parse_client_file("", HERE) == NO_IDENTITY
    assert parse_client_file("[tls]", HERE) == ClientFile(TlsFiles())
    assert NO_IDENTITY.context is None
    assert NO_IDENTITY.admin_token == ""
    assert ClientFile(TlsFiles()).context is not None
    assert context_of("") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[tsl]", "did you mean tls"),
        ("tls = 5", "not a table"),
        ("[tls]\ncertifcate = 'a'", "did you mean certificate"),
        ("[tls]\nkey = 5", "must be the path"),
        ("[tls]\nkey = ''", "must be the path"),
        ("[admin]\ntoken = 'secret'", "did you mean token_file"),
    ],
)
def test_other_content_is_refused(text: str, why: str) -> None:
    with pytest.raises(ClientFileError, match=why):
        parse_client_file(text, HERE)


def test_a_file_is_read_and_a_bad_one_is_named(tmp_path: Path) -> None:
    authority = DevelopmentAuthority(tmp_path)
    authority.issue("alice", ())
    path = tmp_path / "client.toml"
    path.write_text(
        '[tls]\ncertificate = "alice.pem"\nkey = "alice-key.pem"\nauthorities = "ca.pem"\n'
    )
    assert context_of(str(path)) is not None
    for content in (b"\xff", b"[", b"x" * 70_000):
        path.write_bytes(content)
        with pytest.raises(ClientFileError, match=r"client\.toml"):
            read_client_file(str(path))
    with pytest.raises(ClientFileError, match="cannot be read"):
        read_client_file(str(tmp_path / "missing"))


def test_a_secret_of_an_admin_port(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("secret\n")
    assert parse_client_file('[admin]\ntoken_file = "token"', tmp_path).admin_token == "secret"
