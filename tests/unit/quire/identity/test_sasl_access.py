"""Logins of Quire's own clients, and the settings of Kafka's Python client for them."""

from pathlib import Path

import pytest

from quire.identity.client_file import ClientFile, kafka_settings, parse_client_file
from quire.identity.errors import ClientFileError, SecretError
from quire.identity.sasl.mechanism import Mechanism
from quire.identity.sasl.plain import PlainClient
from quire.identity.sasl.scram import ScramClient
from quire.identity.sasl_access import SaslAccess, sasl_access
from quire.identity.tls import TlsFiles
from tests.support.security.sasl_parts import run_here

SCRAM = Mechanism.SCRAM_SHA_512


def password_file(directory: Path, mode: int = 0o600) -> str:
    path = directory / "password"
    path.touch()
    path.chmod(mode)
    path.write_text("a secret\n")
    return str(path)


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_begins_with_a_new_nonce_and_without_the_password(
    tmp_path: Path, mechanism: str
) -> None:
    access = sasl_access(mechanism, "alice", password_file(tmp_path))
    first, second = (access.begin(run_here) for _ in range(2))
    assert isinstance(first, ScramClient)
    messages = {first.begin(), second.begin()}
    assert len(messages) == 2
    assert all(message.startswith(b"n,,n=alice,r=") for message in messages)
    assert access.begin(run_here, lambda: "abc").begin() == b"n,,n=alice,r=abc"


def test_plain_begins_with_the_password(tmp_path: Path) -> None:
    exchange = sasl_access("PLAIN", "alice", password_file(tmp_path)).begin(run_here)
    assert isinstance(exchange, PlainClient)
    assert exchange.begin() == b"\0alice\0a secret"


def test_the_password_is_read_when_it_is_used(tmp_path: Path) -> None:
    access = SaslAccess(SCRAM, "alice", str(tmp_path / "password"))
    with pytest.raises(SecretError, match="password"):
        access.begin(run_here)
    password_file(tmp_path)
    assert access.password == "a secret"
    assert "a secret" not in repr(access)
    (tmp_path / "password").write_text("another\n")
    assert access.password == "another"


def test_a_password_that_others_may_read_is_refused(tmp_path: Path) -> None:
    access = SaslAccess(SCRAM, "alice", password_file(tmp_path, 0o644))
    with pytest.raises(SecretError) as caught:
        access.begin(run_here)
    assert "a secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("mechanism", "user", "path", "why"),
    [
        ("", "alice", "p", "needs a mechanism: one of SCRAM-SHA-512"),
        ("OAUTHBEARER", "alice", "p", "needs a mechanism"),
        ("scram-sha-512", "alice", "p", "needs a mechanism"),
        ("PLAIN", "", "p", "needs user and password_file"),
        ("PLAIN", "alice", "", "needs user and password_file"),
    ],
)
def test_parts_that_are_missing_are_named(mechanism: str, user: str, path: str, why: str) -> None:
    with pytest.raises(ClientFileError, match=why):
        sasl_access(mechanism, user, path)


def test_a_clients_file_has_the_login() -> None:
    text = '[sasl]\nmechanism = "SCRAM-SHA-512"\nuser = "alice"\npassword_file = "p"\n'
    assert parse_client_file(text, Path("/etc")).sasl == SaslAccess(SCRAM, "alice", "/etc/p")


# -- settings of Kafka's Python client


def test_settings_without_an_identity_are_empty() -> None:
    assert kafka_settings(ClientFile()) == {}


def test_settings_with_tls_alone() -> None:
    settings = kafka_settings(ClientFile(TlsFiles()))
    assert settings["security_protocol"] == "SSL"
    assert set(settings) == {"security_protocol", "ssl_context"}


@pytest.mark.parametrize(
    ("files", "protocol"), [(None, "SASL_PLAINTEXT"), (TlsFiles(), "SASL_SSL")]
)
def test_settings_with_a_login(tmp_path: Path, files: TlsFiles | None, protocol: str) -> None:
    access = SaslAccess(SCRAM, "alice", password_file(tmp_path))
    settings = kafka_settings(ClientFile(files, sasl=access))
    assert settings.pop("ssl_context", None) is not None or files is None
    assert settings == {
        "security_protocol": protocol,
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "a secret",
    }


def test_plain_is_only_for_connections_with_tls(tmp_path: Path) -> None:
    access = SaslAccess(Mechanism.PLAIN, "alice", password_file(tmp_path))
    assert kafka_settings(ClientFile(TlsFiles(), sasl=access))["sasl_mechanism"] == "PLAIN"
    with pytest.raises(ClientFileError, match="PLAIN sends the password as it is"):
        kafka_settings(ClientFile(None, sasl=access))
