"""Options of a console, and its refusal to be open by accident."""

from pathlib import Path

import pytest

from quire.console.options import CONSOLE
from quire.options import OptionError

TLS: dict[str, str | bool] = {
    "tls": "required",
    "tls_cert_file": "c",
    "tls_key_file": "k",
    "tls_ca_file": "a",
}


def test_the_defaults_are_for_this_machine_and_read_only() -> None:
    options = CONSOLE.load(None, {}, {})
    assert options.host == "127.0.0.1"
    assert not options.allow_writes


def test_sources_override_each_other() -> None:
    text = '[console]\nport = 1\nbase_path = "/a"\nhost_names = "A.example, b"\n'
    variables = {"QUIRE_CONSOLE_PORT": "2", "QUIRE_METADATA": "zk://m:1/x"}
    options = CONSOLE.load(text, variables, {"port": 3})
    assert (options.port, options.base_path, options.metadata) == (3, "/a", "zk://m:1/x")
    assert CONSOLE.load(text, variables, {}).port == 1
    assert options.names == ("a.example", "b")


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        ({"host": "0.0.0.0", "allow_plaintext": True}, "set admin_token_file"),
        ({"host": "10.0.0.7"}, "allow_plaintext"),
        ({"base_path": "/a/"}, "without a slash at its end"),
        ({"metadata": "nowhere"}, "metadata: "),
        ({"tls": "optional"}, "off or required"),
        ({"tls": "required"}, "tls_cert_file"),
        (TLS, "no certificate is a login"),
        ({**TLS, "host": "10.0.0.7"}, "super_users or readers"),
        ({**TLS, "readers": "ann"}, "readers: .*User:NAME"),
    ],
)
def test_bad_options_are_refused(flags: dict[str, str | bool], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        CONSOLE.load(None, {}, flags)


@pytest.mark.parametrize("role", ["super_users", "readers"])
def test_roles_are_enough_for_other_machines(role: str) -> None:
    options = CONSOLE.load(None, {}, {**TLS, "host": "10.0.0.7", role: "User:ann"})
    assert options.has_certified_logins


def test_a_token_is_enough_for_other_machines(tmp_path: Path) -> None:
    token = tmp_path / "token"
    flags: dict[str, str | bool] = {
        "host": "10.0.0.7",
        "allow_plaintext": True,
        "admin_token_file": str(token),
    }
    assert CONSOLE.load(None, {}, flags).host == "10.0.0.7"
