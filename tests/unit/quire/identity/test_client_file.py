"""The file with a client's identity."""

from pathlib import Path

import pytest

from quire.identity.client_file import (
    NO_IDENTITY,
    ClientFile,
    identity_in,
    parse_client_file,
    read_client_file,
    zookeeper_access_of,
)
from quire.identity.errors import ClientFileError, SecretError
from quire.identity.tls import TlsFiles
from quire.identity.zookeeper_access import NO_ACCESS, ZooKeeperAccess, read_password
from quire.local.development_certificates import DevelopmentAuthority

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
    assert identity_in("") is NO_IDENTITY


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[tsl]", "did you mean tls"),
        ("tls = 5", "not a table"),
        ("[tls]\ncertifcate = 'a'", "did you mean certificate"),
        ("[tls]\nkey = 5", "must be the path"),
        ("[tls]\nkey = ''", "must be the path"),
        ("[admin]\ntoken = 'secret'", "did you mean token_file"),
        ("[zookeeper]\ntls = 'yes'", "must be true or false"),
        ("[zookeeper]\nuser = 'a'", "both user and password_file"),
        ("[zookeeper]\npassword_file = 'a'", "both user and password_file"),
        ("[zookeeper]\nuser = 'a:b'\npassword_file = 'a'", "cannot be a user"),
        ("[zookeeper]\nuser = 5\npassword_file = 'a'", "must be a text"),
        ("[zookeeper]\npassword = 'secret'", "did you mean password_file"),
        ("[zookeeper]\nauthorities = 'ca.pem'", "write tls = true"),
        ("[zookeeper]\ntls = true\nkey = 'a'", "both certificate and key"),
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
    assert identity_in(str(path)).contexts is not None
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
    own = parse_client_file('[admin]\ntoken_file = "token"', tmp_path)
    assert own.admin_token == "secret"
    assert not own.may_show_token
    text = '[admin]\ntoken_file = "token"\nallow_plaintext = true'
    assert parse_client_file(text, tmp_path).may_show_token


def test_zookeeper_has_the_files_of_tls_or_its_own() -> None:
    shared = "[tls]\nauthorities = 'ca.pem'\n[zookeeper]\ntls = true\n"
    assert parse_client_file(shared, HERE).zookeeper == ZooKeeperAccess(
        TlsFiles(authorities="/etc/quire/ca.pem")
    )
    own = parse_client_file(shared + "authorities = 'zk.pem'", HERE).zookeeper
    assert own.tls == TlsFiles(authorities="/etc/quire/zk.pem")
    assert parse_client_file("[zookeeper]\ntls = true", HERE).zookeeper.tls == TlsFiles()
    none = parse_client_file("[tls]\n[zookeeper]\ntls = false", HERE).zookeeper
    assert none == NO_ACCESS
    assert none.context is None
    assert zookeeper_access_of("") == NO_ACCESS


def test_a_login_to_zookeeper(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("0123456789abcdef\n")
    text = "[zookeeper]\nuser = 'servers'\npassword_file = 'secret'"
    access = parse_client_file(text, tmp_path).zookeeper
    assert access.has_login
    assert access.credential == "servers:0123456789abcdef"
    assert access.identity == "digest:servers:3/YblzmLXtLHlF16oTzu5c2ch7o="
    assert "0123456789abcdef" not in repr(access)
    assert not NO_ACCESS.has_login
    assert NO_ACCESS.identity == ""
    assert ZooKeeperAccess(TlsFiles("a.pem", "a-key.pem")).has_login


@pytest.mark.parametrize("password", ["too short", "0123456789 abcdef", "0123456789abcdef\u00e9"])
def test_a_password_is_long_and_plain_and_is_not_shown(tmp_path: Path, password: str) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text(password)
    with pytest.raises(SecretError, match="password") as caught:
        read_password(str(secret))
    assert password not in str(caught.value)
    secret.chmod(0o644)
    with pytest.raises(SecretError, match="chmod 600"):
        read_password(str(secret))


def test_a_password_is_sent_over_tls_or_to_this_machine() -> None:
    plain = ZooKeeperAccess(None, "servers", "secret")
    plain.check_may_send(["127.0.0.1", "::1", "localhost"])
    for host in ("10.0.0.7", "zk1.example", "localhost.example"):
        with pytest.raises(ClientFileError, match=f"{host} without TLS: write tls = true"):
            plain.check_may_send(["localhost", host])
        ZooKeeperAccess(TlsFiles(), "servers", "secret").check_may_send([host])
        ZooKeeperAccess(None, "servers", "secret", allow_plaintext=True).check_may_send([host])
        NO_ACCESS.check_may_send([host])
    text = "[zookeeper]\nuser = 'a'\npassword_file = 'a'\nallow_plaintext = true"
    assert parse_client_file(text, HERE).zookeeper.allow_plaintext
